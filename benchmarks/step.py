"""An update's wall time by stage, on the demo: what generation, forward and backward leave for everything else.

    python benchmarks/step.py [section.key=value ...]

Trains a few updates of configs/demo.yaml (the demo policy is built first, where it is not cached) and takes the
median of each stage, the first update left out. Limits: "other" - databases, tools, reward, record, optimizer,
logging - at most 5% of an update, and an update at most 12 s, so that the demo's 25 stay under 5 minutes on two
cores.
"""

import json
import statistics
import sys
import tempfile
from pathlib import Path

# Run as a program, this folder's env.py and reward.py would hide the packages of those names.
sys.path[0] = str(Path(__file__).resolve().parent.parent)

from train.config_load import load_config  # noqa: E402

UPDATES = 4
OTHER_SHARE, SECONDS = 0.05, 12.0
MODEL = ("generate", "reference", "forward", "backward")


def main(overrides: list[str]) -> int:
    """Print one JSON line; 0 when both limits hold."""
    root = Path(__file__).resolve().parent.parent
    with tempfile.TemporaryDirectory() as folder:
        own = [f"output={folder}", "name=step", f"train.max_steps={UPDATES}", "train.save_updates=1000"]
        config = load_config([root / "configs" / "demo.yaml"], [*own, *overrides])
        from train.run import run

        finished = run(config)
        lines = [json.loads(line) for line in (finished.folder / "metrics.jsonl").read_text().splitlines()][1:]
    stages = sorted(key for key in lines[0] if key.startswith("seconds/"))
    median = {stage.removeprefix("seconds/"): statistics.median(line[stage] for line in lines) for stage in stages}
    update = median["update"]
    other = 1 - sum(median[stage] for stage in MODEL) / update
    ok = other <= OTHER_SHARE and update <= SECONDS
    measured = {"seconds": {stage: round(spent, 3) for stage, spent in median.items()}, "other_share": round(other, 4)}
    limits = {"other_share": OTHER_SHARE, "seconds": SECONDS}
    print(json.dumps({"benchmark": "step", "updates": len(lines), "measured": measured, "limit": limits, "ok": ok}))
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
