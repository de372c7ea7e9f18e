"""A sweep's comparison: a row a run, a row a mean over the seeds, from what lies in the run folders."""

import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from sqale_grpo.env.files import write_whole
from sqale_grpo.env.markdown import markdown_table
from sqale_grpo.env.text import harmless
from sqale_grpo.rollout.record import METRICS, read_metrics
from sqale_grpo.sweep.file import SweepRun
from sqale_grpo.sweep.state import standing

# (key of metrics.jsonl, heading, format)
TRAINING = (
    ("reward", "reward", "{:.2f}"),
    ("equivalent_rate", "equivalent", "{:.1%}"),
    ("invalid_rate", "invalid", "{:.1%}"),
    ("rounds", "rounds", "{:.1f}"),
    ("tool_calls", "calls", "{:.1f}"),
)
LAST = 5  # updates that a training figure is the mean of
EVALUATED = (("equivalent", "", "{:.1%}"), ("robust", " robust", "{:.1%}"), ("table_recall", " recall", "{:.1%}"))
SEED = "seed"


def compare(runs: Sequence[SweepRun]) -> list[dict[str, Any]]:
    """One record a run, in order: name, parameters, state, updates, error, and by finished runs the figures.

    ``training``: means over the last updates; ``evaluations``: each evaluation's summary as it was written.
    """
    records = []
    for run in runs:
        at = standing(run)
        record: dict[str, Any] = {
            "name": run.name,
            "parameters": run.parameters,
            "state": at.state,
            "updates": at.updates,
            "planned_updates": run.config.train.updates,
            "error": at.error,
        }
        if at.state == "finished":
            lines = read_metrics(run.folder / METRICS)[0][-LAST:]
            if lines:  # else its file was damaged or removed: a dash stands for each figure
                record["training"] = {key: statistics.fmean(line[key] for line in lines) for key, _, _ in TRAINING}
            record["evaluations"] = {
                path.parent.name: json.loads(path.read_text(encoding="utf-8"))
                for path in sorted((run.folder / "evaluations").glob("*/summary.json"))
            }
        records.append(record)
    return records


def means(records: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """For each combination of the parameters but the seed with more than one run: the mean over its finished runs."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for record in records:
        others = {name: value for name, value in record["parameters"].items() if name != SEED}
        groups.setdefault(json.dumps(others), []).append(record)
    rows = []
    for rest, members in groups.items():
        finished = [member for member in members if member["state"] == "finished"]
        if len(members) < 2 or SEED not in members[0]["parameters"] or not finished:
            continue
        figures = [_figures(member) for member in finished]
        shared = [key for key in figures[0] if all(key in other for other in figures)]
        rows.append(
            {
                "parameters": json.loads(rest),
                "runs": len(members),
                "finished": len(finished),
                "mean": {key: statistics.fmean(other[key] for other in figures) for key in shared},
                "range": {key: [min(o[key] for o in figures), max(o[key] for o in figures)] for key in shared},
            }
        )
    return rows


def write_comparison(records: Sequence[dict[str, Any]], folder: Path) -> tuple[Path, Path]:
    """``comparison.md`` and ``comparison.jsonl`` in ``folder``, each whole or not there; returns their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = [*records, *({"mean_of": row.pop("parameters"), **row} for row in means(records))]
    table, figures = folder / "comparison.md", folder / "comparison.jsonl"
    write_whole(table, markdown(records))
    write_whole(figures, "".join(json.dumps(line) + "\n" for line in lines))
    return table, figures


def markdown(records: Sequence[dict[str, Any]]) -> str:
    """The comparison as a Markdown table; below it what failed runs said last."""
    headings, rows = cells(records)
    table = markdown_table(headings, rows, names=2) + "\n"
    failed = failures(records)
    return table + ("\n" + "".join(f"- {text}\n" for text in failed) if failed else "")


def failures(records: Sequence[dict[str, Any]]) -> list[str]:
    """A line for each failed run: its name, and what it said last."""
    return [f"{record['name']}: {record['error']}" for record in records if record["state"] == "failed"]


def rich_table(records: Sequence[dict[str, Any]], title: str) -> Table:
    """The same for a terminal."""
    headings, rows = cells(records)
    table = Table(title=Text(harmless(title)))
    for position, heading in enumerate(headings):
        table.add_column(Text(harmless(heading)), justify="left" if position < 2 else "right", overflow="fold")
    for row in rows:
        table.add_row(*(Text(harmless(cell)) for cell in row))
    return table


def cells(records: Sequence[dict[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Headings, and the text of each run's and each mean's row; what is not there is a dash."""
    evaluations = list(dict.fromkeys(name for record in records for name in record.get("evaluations", {})))
    columns = [(f"training {key}", heading, form) for key, heading, form in TRAINING]
    columns += [(f"{name} {key}", name + text, form) for name in evaluations for key, text, form in EVALUATED]
    columns = [c for c in columns if c[0].startswith("training") or any(c[0] in _figures(r) for r in records)]
    rows = []
    for record in records:
        figures = _figures(record)
        shown = [form.format(figures[key]) if key in figures else "–" for key, _, form in columns]
        rows.append([record["name"], _state(record), *shown])
    for row in means(records):
        name = "mean of " + (", ".join(_short(value) for value in row["parameters"].values()) or "all")
        shown = [form.format(row["mean"][key]) if key in row["mean"] else "–" for key, _, form in columns]
        rows.append([name, f"{row['finished']} of {row['runs']} runs", *shown])
    return ["run", "state", *(heading for _, heading, _ in columns)], rows


def _state(record: dict[str, Any]) -> str:
    if record["state"] == "failed":
        return f"failed at update {record['updates']}"
    return (
        record["state"] if record["state"] != "unfinished" else f"at {record['updates']} of {record['planned_updates']}"
    )


def _short(value: Any) -> str:
    return Path(value).stem if str(value).endswith(".yaml") else str(value)


def _figures(record: dict[str, Any]) -> dict[str, float]:
    """The record's numbers under ``training KEY`` and ``EVALUATION KEY``."""
    figures = {f"training {key}": value for key, value in record.get("training", {}).items()}
    for name, summary in record.get("evaluations", {}).items():
        for key, _, _ in EVALUATED:
            if isinstance(summary.get(key), int | float):
                figures[f"{name} {key}"] = float(summary[key])
    return figures
