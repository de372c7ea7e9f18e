"""``python -m sqale_grpo.export.background CHECKPOINT OUT REPO MESSAGE``: one push beside a run, leaving nothing.

Started by ``train.push`` on links to a checkpoint; those and the export are removed at the end, however it ends.
"""

import shutil
import sys
from pathlib import Path

from sqale_grpo.env.files import partial_path
from sqale_grpo.env.program import run_program
from sqale_grpo.export.command import main


def push(checkpoint: Path, out: Path, repo: str, message: str) -> int:
    """Export without verifying, which would take the run's processors, and push; returns the exit status."""
    try:
        return main([str(checkpoint), "--out", str(out), "--no-verify", "--push", repo, "--message", message])
    finally:
        for folder in (checkpoint, out, partial_path(out)):
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(run_program(lambda: push(Path(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:])))
