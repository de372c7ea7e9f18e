"""The numbers behind a table's cells: one metric of one policy, with its interval, its seeds and what is missing."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from sqale_grpo.evaluate.evaluations import Evaluation, seeds_of
from sqale_grpo.evaluate.identity import MARKED_SHARE, digest_of_all, missing
from sqale_grpo.evaluate.intervals import Interval
from sqale_grpo.evaluate.metrics import METRICS, TFLOPS, Row, metric_interval, metric_value

PERCENT = 100.0
NOTHING = "–"
INCOMPLETE = "†"
PART_OF_BENCHMARK = "§"


@dataclass(frozen=True)
class Figure:
    """One number of a table: the mean over ``seeds`` policies on ``n`` different questions, with its 95% interval.

    ``missing``: states of the evaluations that belong here and are not finished; they are in no mean. ``identity``: the
    digest of all that decides the number beside the policy. ``left_out``: the share of the benchmark's questions that
    cannot be asked, ``why`` in words.
    """

    policy: str
    benchmark: str
    schema: str
    metric: str
    difficulty: str = ""
    value: float | None = None
    low: float | None = None
    high: float | None = None
    n: int = 0
    seeds: int = 0
    missing: tuple[str, ...] = ()
    published: float | None = None
    identity: str = ""
    left_out: float = 0.0
    why: str = ""

    @property
    def of_part(self) -> bool:
        """Is so much of the benchmark missing that the number is not the benchmark's?"""
        return self.left_out > MARKED_SHARE

    def text(self, scale: float = PERCENT, form: str = ".1f", beside: str = "") -> str:
        """``66.3 [60.8, 71.4]``, by default in percent, ``beside`` between the two; † where evaluations are missing,
        § where questions of the benchmark are.
        """
        if self.value is None:
            return " ".join(sorted(set(self.missing))) or NOTHING
        parts = [f"{self.value * scale:{form}}", beside]
        if self.low is not None and self.high is not None:
            parts.append(f"[{self.low * scale:{form}}, {self.high * scale:{form}}]")
        marks = (INCOMPLETE if self.missing else "") + (PART_OF_BENCHMARK if self.of_part else "")
        return " ".join(filter(None, parts)) + marks


def figure(
    evaluations: Sequence[Evaluation], metric: str, difficulty: str = "", published: float | None = None
) -> Figure:
    """The figure of one policy, benchmark and size: ``evaluations`` are those of its seeds.

    ``metric`` is a name of ``evaluate.metrics.METRICS``, or ``tflops`` / ``tflops_reprocessed``.
    """
    first = evaluations[0]
    factor, name = tflops_factor(evaluations, metric)
    seeds = of_difficulty(seeds_of(evaluations, METRICS[name].every), difficulty)
    value = interval = None
    if seeds and factor is not None:
        value, interval = metric_value(seeds, METRICS[name]), metric_interval(seeds, METRICS[name])
    low, high = scaled(interval, factor)
    return Figure(
        policy=first.policy,
        benchmark=first.benchmark,
        schema=first.schema,
        metric=metric,
        difficulty=difficulty,
        value=None if value is None else value * (factor or 1.0),
        low=low,
        high=high,
        n=len({row["question_id"] for rows in seeds for row in rows}),
        seeds=len(seeds),
        missing=tuple(each.state for each in evaluations if each.state != "finished"),
        published=published,
        **identity_fields(evaluations),
    )


def identity_fields(evaluations: Iterable[Evaluation]) -> dict[str, Any]:
    """What a figure over the finished ones of ``evaluations`` says of its identity."""
    identities = [each.identity for each in evaluations if each.state == "finished"]
    shares = [missing(each.get("left_out") or {}) for each in identities]
    left_out, why = max(shares, default=(0.0, ""))
    return {"identity": digest_of_all(identities), "left_out": left_out, "why": why}


def of_difficulty(seeds: Iterable[list[Row]], difficulty: str) -> list[list[Row]]:
    """The rows of one difficulty; all for an empty one."""
    kept = [[row for row in rows if difficulty in ("", row["difficulty"])] for rows in seeds]
    return [rows for rows in kept if rows]


def tflops_factor(evaluations: Sequence[Evaluation], metric: str) -> tuple[float | None, str]:
    """What to multiply the metric of that name with; None where the number of parameters is not known."""
    tokens = TFLOPS.get(metric)
    if tokens is None:
        return 1.0, metric
    known = {each.parameters for each in evaluations if each.state == "finished"}
    parameters = known.pop() if len(known) == 1 else None
    return (None if parameters is None else 2 * parameters / 1e12), tokens


def scaled(interval: Interval | None, factor: float | None) -> tuple[float | None, float | None]:
    """Both ends times ``factor``."""
    return (None, None) if interval is None or factor is None else (interval[0] * factor, interval[1] * factor)
