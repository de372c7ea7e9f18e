"""Metrics of evaluated episodes, from the rows of ``evaluate.records``: rates, means, pass@k, and how two runs differ.

Every metric is a sum over episodes divided by a sum of weights (``METRICS``), so one definition serves a run's summary,
a table's cell and the mean over seeds. Questions whose gold result is unstable have no right answer to compare with and
stand apart, except for the benchmark's own verdict, which counts all of its questions; an evaluation with questions
that failed has no summary until they are played.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from math import comb
from typing import Any

from sqale_grpo.evaluate.intervals import Interval, Part, paired_difference, ratio, seeds_interval
from sqale_grpo.rollout.rates import wilson

Row = dict[str, Any]
TIERS = ("equivalent", "executable", "parsable", "invalid")


@dataclass(frozen=True)
class Metric:
    """``part`` and ``weight`` of one row; a ``rate`` lies between 0 and 1 and has an interval that does too.

    ``every``: over questions with an unstable gold result too.
    """

    part: Callable[[Row], float]
    weight: Callable[[Row], float] = lambda row: 1.0
    rate: bool = False
    every: bool = False


def _column(name: str) -> Callable[[Row], float]:
    return lambda row: row[name]


def _share(part: str, weight: str) -> Metric:
    return Metric(_column(part), _column(weight), rate=True)


def _equals(column: str, value: str) -> Metric:
    return Metric(lambda row: row[column] == value, rate=True)


METRICS: dict[str, Metric] = {
    **{tier: _equals("tier", tier) for tier in TIERS},
    "robust": Metric(lambda row: bool(row["robust"]), lambda row: row["robust"] is not None, rate=True),
    "official": Metric(
        lambda row: bool(row["official"]), lambda row: row["official"] is not None, rate=True, every=True
    ),
    "reward": Metric(_column("reward")),
    "table_recall": Metric(_column("recall"), rate=True),
    "literals_seen": _share("literals_seen", "literals"),
    "stated_literals_seen": _share("stated_seen", "stated"),
    "unstated_literals_seen": _share("unstated_seen", "unstated"),
    "literals_used": _share("literals_used", "literals"),
    "unstated_literals_used": _share("unstated_used", "unstated"),
    "unstated_literals_used_of_seen": _share("unstated_used", "unstated_seen"),
    "rounds": Metric(_column("rounds")),
    "calls": Metric(_column("calls")),
    "distinct_calls": Metric(_column("distinct_calls")),
    "calls_per_round": Metric(_column("calls"), _column("rounds")),
    "prompt_tokens": Metric(_column("prompt_tokens")),
    "completion_tokens": Metric(_column("completion_tokens")),
    "written_tokens": Metric(_column("written_tokens")),
    "processed_tokens": Metric(_column("processed_tokens")),
    "reprocessed_tokens": Metric(_column("reprocessed_tokens")),
}
# TFLOPs a question: 2 x parameters x tokens, every token once or each turn's whole context again.
TFLOPS = {"tflops": "processed_tokens", "tflops_reprocessed": "reprocessed_tokens"}
OF_DIFFICULTY = ("equivalent", "robust", "table_recall", "processed_tokens", "reprocessed_tokens")


def summarize(rows: Sequence[Row], parameters: float | None = None) -> dict[str, Any]:
    """All metrics of one evaluation, by name; ``intervals`` has the 95% interval of each that has one.

    ``parameters``: of the model, for TFLOPs (None: unknown). A metric without weight (no literals, no official verdict)
    is None.
    ValueError where no question with a stable gold result is left.
    """
    every, apart, rows = rows, [row for row in rows if row["unstable"]], stable(rows)
    if not rows:
        raise ValueError(f"no episodes to summarise: {len(apart)} questions, all with an unstable gold result")
    groups = by_question(rows)
    empty = [row for row in rows if row["gold_empty"]]
    summary: dict[str, Any] = {
        "n": len(groups),
        "episodes": len(rows),
        "unstable": {"n": len(by_question(apart)), "equivalent": _equivalent(apart)},
        "gold_empty": {"n": len(by_question(empty)), "equivalent": _equivalent(empty)},
    }
    intervals: dict[str, Interval | None] = {}
    summary |= _values(METRICS, rows, parameters, intervals, every)
    summary["official_n"] = len(by_question(row for row in every if row["official"] is not None))
    summary["ended_by"] = {name: count / len(rows) for name, count in sorted(Counter(_ended(rows)).items())}
    for name in summary["ended_by"]:
        intervals[f"ended_by/{name}"] = metric_interval([rows], _equals("ended_by", name))
    candidates = min(map(len, groups.values()))
    if candidates > 1:
        summary["candidates"] = candidates
        for name, parts in several_candidates(groups, candidates).items():
            summary[name] = ratio(parts)
            intervals[name] = rate_interval([parts])
    summary["by_difficulty"] = {
        difficulty: _of_difficulty([row for row in rows if row["difficulty"] == difficulty], parameters)
        for difficulty in sorted({row["difficulty"] for row in rows})
    }
    summary["intervals"] = intervals
    return summary


def _values(
    metrics: dict[str, Metric],
    rows: Sequence[Row],
    parameters: float | None,
    intervals: dict[str, Interval | None],
    every: Sequence[Row] = (),
) -> dict[str, float | None]:
    """The metrics over ``rows`` and TFLOPs, intervals into ``intervals``; ``every``: rows of those that say so."""
    of = {name: [every if metric.every else rows] for name, metric in metrics.items()}
    values = {name: metric_value(of[name], metric) for name, metric in metrics.items()}
    intervals |= {name: metric_interval(of[name], metric) for name, metric in metrics.items()}
    for name, tokens in TFLOPS.items():
        factor = None if parameters is None else 2 * parameters / 1e12
        value, interval = values[tokens], intervals[tokens]
        values[name] = None if factor is None or value is None else factor * value
        intervals[name] = None if factor is None or interval is None else (factor * interval[0], factor * interval[1])
    return values


def _of_difficulty(rows: Sequence[Row], parameters: float | None) -> dict[str, Any]:
    intervals: dict[str, Interval | None] = {}
    values = _values({name: METRICS[name] for name in OF_DIFFICULTY}, rows, parameters, intervals)
    return {"n": len(by_question(rows)), **values, "intervals": intervals}


def _equivalent(rows: Iterable[Row]) -> int:
    return sum(row["tier"] == "equivalent" for row in rows)


def _ended(rows: Iterable[Row]) -> list[str]:
    return [row["ended_by"] for row in rows]


def stable(rows: Sequence[Row]) -> list[Row]:
    """The rows of questions whose gold result is the same in every run."""
    return [row for row in rows if not row["unstable"]]


def by_question(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """Rows by question, in the order in which questions first come."""
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        groups[row["question_id"]].append(row)
    return dict(groups)


def metric_parts(rows: Iterable[Row], metric: Metric) -> list[Part]:
    """What each row adds to the metric."""
    return [(row["question_id"], float(metric.part(row)), float(metric.weight(row))) for row in rows]


def metric_value(seeds: Sequence[Sequence[Row]], metric: Metric) -> float | None:
    """The mean over seeds of the metric over each seed's rows; None where a seed has no weight."""
    values = [ratio(metric_parts(rows, metric)) for rows in seeds]
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known and len(known) == len(values) else None


def metric_interval(seeds: Sequence[Sequence[Row]], metric: Metric) -> Interval | None:
    """95% interval of ``metric_value``, over questions and, of several seeds, over seeds too."""
    parts = [metric_parts(rows, metric) for rows in seeds]
    return rate_interval(parts) if metric.rate else seeds_interval(parts)


def rate_interval(seeds: Sequence[Sequence[Part]]) -> Interval | None:
    """95% interval of a rate: Wilson's where each question counts once, else that over seeds and questions.

    Where all is right, or nothing, there is nothing that varies: there it is Wilson's over the questions.
    """
    parts = [part for seed in seeds for part in seed if part[2]]
    questions = len({question for question, _, _ in parts})
    right, weight = sum(part for _, part, _ in parts), sum(size for _, _, size in parts)
    if not weight or not all(any(size for _, _, size in seed) for seed in seeds):
        return None
    if right in (0, weight):
        return wilson(questions if right else 0, questions)
    if len(seeds) == 1 and weight == len(parts) == questions and right == round(right):
        return wilson(round(right), questions)
    found = seeds_interval(seeds)  # that over few seeds may leave what a rate can be
    return found and (max(0.0, found[0]), min(1.0, found[1]))


def several_candidates(groups: dict[str, list[Row]], k: int) -> dict[str, list[Part]]:
    """pass@1, 2, 4 ... k and majority@k of questions with ``k`` candidates or more: parts by question.

    Also for answers that are right on counter-databases too, where all were looked at.
    """
    steps = sorted({*(2**i for i in range(k.bit_length()) if 2**i <= k), k})
    found: dict[str, list[Part]] = {}
    robust = all(row["robust"] is not None for rows in groups.values() for row in rows)
    for name, right in (("", _equivalent), ("robust ", _robust))[: 1 + robust]:
        found |= {
            f"{name}pass@{step}": [(q, pass_at(len(rows), right(rows), step), 1.0) for q, rows in groups.items()]
            for step in steps
        }
        if not name:  # the first k of each: who answered more often has no larger vote
            found[f"majority@{k}"] = [(q, majority(rows[:k]), 1.0) for q, rows in groups.items()]
    return found


def _robust(rows: Sequence[Row]) -> int:
    return sum(bool(row["robust"]) for row in rows)


def pass_at(n: int, right: int, k: int) -> float:
    """Unbiased estimate from ``n`` candidates that at least one of ``k`` is right (Chen et al., 2021)."""
    return 1.0 - comb(n - right, k) / comb(n, k)


def majority(rows: Sequence[Row]) -> float:
    """Is the most common result right? Candidates vote by ``result_class``; who did not run has no vote.

    Of classes with equally many votes one is drawn: the value is the share of right ones among them. A class that holds
    nearly equal numbers may be right in part; its share counts.
    """
    votes: dict[int, list[bool]] = defaultdict(list)
    for row in rows:
        if row["result_class"] is not None:
            votes[row["result_class"]].append(row["tier"] == "equivalent")
    most = max(map(len, votes.values()), default=0)
    shares = [sum(right) / len(right) for right in votes.values() if len(right) == most]
    return sum(shares) / len(shares) if shares else 0.0


def run_difference(before: Sequence[Row], after: Sequence[Row], metric: str = "equivalent") -> tuple[float, Interval]:
    """Mean of after - before of a metric over the same questions, and its 95% interval (paired).

    Each question counts once, with the mean over its candidates. ValueError where the two have not the same questions.
    """
    kept = (before, after) if METRICS[metric].every else (stable(before), stable(after))
    left, right = map(by_question, kept)
    refuse_other_questions(left, right)
    means = [[ratio(metric_parts(side[q], METRICS[metric])) for q in left] for side in (left, right)]
    pairs = [(a, b) for a, b in zip(*means, strict=True) if a is not None and b is not None]
    return paired_difference([a for a, _ in pairs], [b for _, b in pairs], METRICS[metric].rate)


def refuse_other_questions(before: Collection[str], after: Collection[str]) -> None:
    """ValueError where two runs did not answer the same questions."""
    first, second = set(before) - set(after), set(after) - set(before)
    if first or second:
        raise ValueError(
            f"the two runs answered different questions ({len(first)} of {len(before)} only in the first, "
            f"{len(second)} of {len(after)} only in the second, e.g. {min(first | second)}); a paired difference needs "
            "the same: evaluate both with the same corpus, split, seed and number of questions, and start one with "
            "failed questions again"
        )
