"""Evaluations as a table: a row a metric, a column an evaluation, and how each differs from the first."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from sqale_grpo.evaluate.identity import MARKED_SHARE
from sqale_grpo.evaluate.intervals import paired_difference
from sqale_grpo.evaluate.metrics import METRICS as KNOWN
from sqale_grpo.report.folders import EvaluationFolder

ABOUT = {
    "model": "model",
    "benchmark": "benchmark",
    "schema": "schema",
    "seed": "seed",
    "n": "questions",
    "candidates": "episodes a question",
    "identity": "identity",
    "date": "date",
}
METRICS = {
    "equivalent": "equivalent",
    "executable": "executable, wrong",
    "parsable": "parsable",
    "invalid": "invalid",
    "robust": "right on copies too",
    "official": "benchmark's own verdict",
    "reward": "reward",
    "table_recall": "every gold table opened",
    "literals_seen": "literals seen before the answer",
    "stated_literals_seen": "… of those that the question states",
    "unstated_literals_seen": "… of those that it does not state",
    "unstated_literals_used": "unstated literals used in the answer",
    "rounds": "rounds",
    "calls": "tool calls",
    "distinct_calls": "different calls",
    "written_tokens": "tokens written",
    "tflops": "TFLOPs a question",
}
MISSING = "§ missing of the benchmark"
DIFFERENCE = "equivalent, difference to the first"


def table(evaluations: Sequence[EvaluationFolder]) -> list[tuple[str, list[str]]]:
    """(label, a cell an evaluation) of every row that some evaluation fills; cells without a value are "–"."""
    summaries = [evaluation.summary or {} for evaluation in evaluations]
    rows = [(label, [_plain(summary.get(key)) for summary in summaries]) for key, label in ABOUT.items()]
    rows.append((MISSING, [_missing(summary.get("missing_share")) for summary in summaries]))
    for key, label in METRICS.items():
        rows.append((label, [_metric(summary, key) for summary in summaries]))
        if key == "equivalent":
            rows.append((DIFFERENCE, _differences(evaluations)))
    shares = [_mapping(summary.get("ended_by")) for summary in summaries]
    for name in sorted({name for share in shares for name in share}):
        cells = [_formatted(share.get(name, 0.0), "{:.1%}") if share else "–" for share in shares]
        rows.append((f"ended by {name.replace('_', ' ')}", cells))
    return [(label, cells) for label, cells in rows if any(cell != "–" for cell in cells)]


def _missing(share: Any) -> str:
    """The share of the benchmark's questions that could not be asked, where it is so large that figures suffer."""
    return f"{share:.1%}" if isinstance(share, float) and share > MARKED_SHARE else "–"


def _differences(evaluations: Sequence[EvaluationFolder]) -> list[str]:
    """Paired difference of equivalent to the first evaluation of the same questions, with its 95% interval."""
    firsts: dict[frozenset[str], dict[str, float]] = {}
    cells = []
    for evaluation in evaluations:
        right = _right(evaluation) if evaluation.summary else {}
        first = firsts.setdefault(frozenset(right), right)
        if first is right or len(right) < 2:
            cells.append("–")
            continue
        names = sorted(right)
        mean, (low, high) = paired_difference([first[name] for name in names], [right[name] for name in names])
        cells.append(f"{mean:+.1%} ({low:+.1%} to {high:+.1%})")
    return cells


def _right(evaluation: EvaluationFolder) -> dict[str, float]:
    """Each question's share of right answers; questions with an unstable gold result are left out."""
    tiers: dict[str, list[bool]] = {}
    for path in evaluation.files:
        try:
            with pq.ParquetFile(path) as file:
                rows = file.read(columns=["question_id", "tier", "unstable"], use_threads=False).to_pylist()
        except (OSError, pa.ArrowException):
            continue
        for row in rows:
            if not row["unstable"]:
                tiers.setdefault(row["question_id"], []).append(row["tier"] == "equivalent")
    return {question: sum(right) / len(right) for question, right in tiers.items()}


def _metric(summary: dict[str, Any], key: str) -> str:
    value = summary.get(key)
    if not isinstance(value, int | float):
        return "–"
    interval = _mapping(summary.get("intervals")).get(key)
    form = "{:.1%}" if key in KNOWN and KNOWN[key].rate else "{:.2f}" if abs(value) < 100 else "{:.0f}"
    text = _formatted(value, form)
    if not isinstance(interval, list) or len(interval) != 2:
        return text
    return f"{text} ({_formatted(interval[0], form)} to {_formatted(interval[1], form)})"


def _formatted(value: Any, form: str) -> str:
    return form.format(value) if isinstance(value, int | float) else "–"


def _plain(value: Any) -> str:
    return "–" if value is None or isinstance(value, dict | list) else str(value)


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
