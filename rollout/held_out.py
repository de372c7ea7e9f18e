"""What a run measured on its held-out questions while it trained, a line each time, and which time was the best.

    RUN/held_out.jsonl     update (so many had been made), n, equivalent with its 95% interval, the other rates, asked
    RUN/held_out/          the episodes, one parquet file each time (``rollout.record``)

``asked`` is a digest of what was asked and how: lines that differ in it belong into no one curve.
"""

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sqale_grpo.env.files import write_whole
from sqale_grpo.rollout.rates import wilson
from sqale_grpo.rollout.record import drop_episodes, read_metrics

FOLDER, LINES = "held_out", "held_out.jsonl"
TIERS = ("equivalent", "executable", "parsable", "invalid")
MEANS = {"reward": "reward", "rounds": "rounds", "tool_calls": "calls", "written_tokens": "written_tokens"}


def held_out_line(update: int, records: Sequence[dict[str, Any]], asked: str) -> dict[str, Any]:
    """The line of one play; ``records`` as ``episode_record`` makes them. Void episodes are in no rate."""
    known = [record for record in records if record["tier"] != "void"]
    line: dict[str, Any] = {"update": update, "asked": asked, "n": len(known), "void": len(records) - len(known)}
    if not known:
        return line
    tiers = Counter(record["tier"] for record in known)
    line |= {tier: tiers[tier] / len(known) for tier in TIERS}
    line["equivalent_low"], line["equivalent_high"] = wilson(tiers["equivalent"], len(known))
    return line | {name: sum(each[column] for each in known) / len(known) for name, column in MEANS.items()}


def read_held_out(run: Path) -> list[dict[str, Any]]:
    """The lines of a run's folder, rising, that were measured as the last one was."""
    lines, _ = read_metrics(run / LINES)
    return [line for line in lines if line.get("asked") == lines[-1].get("asked") and "equivalent" in line]


def add_line(run: Path, line: dict[str, Any]) -> None:
    """Add the line of an update, in the place of one that is there."""
    kept = [each for each in read_metrics(run / LINES)[0] if each["update"] != line["update"]]
    _write(run, [*kept, line])


def drop_after(run: Path, update: int) -> None:
    """Remove what was measured after ``update``: a run that goes on from there measures it again."""
    lines, _ = read_metrics(run / LINES)
    if lines:
        _write(run, [line for line in lines if line["update"] <= update])
    drop_episodes(run / FOLDER, update + 1)


def best_update(lines: Sequence[dict[str, Any]]) -> int | None:
    """The update after which the policy was best, the first of equal ones; None before the first update."""
    trained = [line for line in lines if line["update"] > 0]
    return max(trained, key=lambda line: (line["equivalent"], -line["update"]))["update"] if trained else None


def _write(run: Path, lines: Sequence[dict[str, Any]]) -> None:
    rising = sorted(lines, key=lambda line: line["update"])
    write_whole(run / LINES, "".join(json.dumps(line) + "\n" for line in rising))
