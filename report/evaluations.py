"""Evaluations as a table: a row a metric, a column an evaluation, and how each differs from the first."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from evaluate.metrics import paired_difference
from report.folders import EvaluationFolder

SHARES = {
    "equivalent": "equivalent",
    "executable": "executable, wrong",
    "parsable": "parsable",
    "invalid": "invalid",
    "official": "benchmark's own verdict",
    "table_recall": "every gold table opened",
    "literals_seen": "literals seen before the answer",
    "stated_literals_seen": "… that the question states",
    "unstated_literals_seen": "… that the question does not state",
    "unstated_literals_used": "… of those, used in the answer",
}
MEANS = {
    "reward": "reward",
    "rounds": "rounds",
    "calls": "tool calls",
    "distinct_calls": "different calls",
    "written_tokens": "tokens written",
    "tflops": "TFLOPs a question",
}
ABOUT = {
    "model": "model",
    "benchmark": "benchmark",
    "tables": "tables",
    "seed": "seed",
    "n": "questions",
    "date": "date",
}


def table(evaluations: Sequence[EvaluationFolder]) -> list[tuple[str, list[str]]]:
    """(label, a cell an evaluation) of every row that some evaluation fills; cells without a value are "–"."""
    summaries = [evaluation.summary or {} for evaluation in evaluations]
    rows = [(label, [_plain(summary.get(key)) for summary in summaries]) for key, label in ABOUT.items()]
    for key, label in SHARES.items():
        rows.append((label, [_share(summary, key) for summary in summaries]))
        if key == "equivalent":
            rows.append(("difference to the first, paired", _differences(evaluations)))
    rows += [(label, [_mean(summary.get(key)) for summary in summaries]) for key, label in MEANS.items()]
    reasons = sorted({name for summary in summaries for name in _mapping(summary.get("ended_by"))})
    for name in reasons:
        shares = [_mapping(summary.get("ended_by")) for summary in summaries]
        cells = [_percent(share.get(name, 0.0)) if share else "–" for share in shares]
        rows.append((f"ended by {name.replace('_', ' ')}", cells))
    return [(label, cells) for label, cells in rows if any(cell != "–" for cell in cells)]


def _differences(evaluations: Sequence[EvaluationFolder]) -> list[str]:
    """Paired difference of equivalent, with its 95% interval, where both evaluations asked the same questions."""
    first: dict[tuple[str, int], bool] | None = None
    cells = []
    for evaluation in evaluations:
        right = _right(evaluation) if evaluation.summary else {}
        if first is None:
            first = right
            cells.append("–")
        elif right.keys() == first.keys() and len(right) > 1:
            keys = sorted(right)
            mean, (low, high) = paired_difference([first[key] for key in keys], [right[key] for key in keys])
            cells.append(f"{mean:+.1%} ({low:+.1%} to {high:+.1%})")
        else:
            cells.append("–")
    return cells


def _right(evaluation: EvaluationFolder) -> dict[tuple[str, int], bool]:
    """Whether each (question, candidate) was answered right; questions with an unstable gold result left out."""
    right: dict[tuple[str, int], bool] = {}
    for path in evaluation.files:
        try:
            with pq.ParquetFile(path) as file:
                names = [n for n in ("question_id", "candidate", "tier", "unstable") if n in file.schema_arrow.names]
                rows = file.read(columns=names, use_threads=False).to_pylist()
        except (OSError, pa.ArrowException):
            continue
        right |= {(r["question_id"], r["candidate"]): r["tier"] == "equivalent" for r in rows if not r.get("unstable")}
    return right


def _share(summary: dict[str, Any], key: str) -> str:
    value = _estimate(summary.get(key))
    if value is None:
        return "–"
    interval = summary.get(f"{key}_interval")
    if isinstance(summary.get(key), dict):
        interval = summary[key].get("interval")
    if isinstance(interval, list | tuple) and len(interval) == 2:
        return f"{value:.1%} ({interval[0]:.1%} to {interval[1]:.1%})"
    return _percent(value)


def _estimate(value: Any) -> float | None:
    """A metric's value, alone or within a mapping that holds its interval too."""
    if isinstance(value, dict):
        value = value.get("value", value.get("mean", value.get("rate")))
    return float(value) if isinstance(value, int | float) else None


def _mean(value: Any) -> str:
    number = _estimate(value)
    return "–" if number is None else f"{number:.2f}" if number < 100 else f"{number:.0f}"


def _percent(value: float) -> str:
    return f"{value:.1%}"


def _plain(value: Any) -> str:
    return "–" if value is None or isinstance(value, dict | list) else str(value)


def _mapping(value: Any) -> dict[str, float]:
    return value if isinstance(value, dict) else {}
