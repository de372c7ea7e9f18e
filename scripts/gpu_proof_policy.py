"""A policy of random weights for the proof: ``python scripts/gpu_proof_policy.py FOLDER [shape.NAME=N ...]``."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.step import SHAPE, random_policy  # noqa: E402  found from here


def main(words: list[str]) -> int:
    """Write it; Qwen3.5-2B's shape, but for what the words change."""
    changes = dict(word.removeprefix("shape.").split("=") for word in words[1:])
    random_policy(Path(words[0]), {**SHAPE, **{name: int(value) for name, value in changes.items()}})
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
