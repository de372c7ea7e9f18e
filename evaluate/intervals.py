"""95% intervals: paired for two runs, Student's t over several seeds, the bootstrap. Wilson's is ``rollout.rates``.

A rate or a mean is a sum of parts over a sum of weights (1 a part for a mean). The parts of one question belong
together: the bootstrap, for what has no formula of its own, draws whole questions. All draws are seeded: the same rows
give the same interval, in whatever order they come.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import lru_cache

import numpy as np

from sqale_grpo.rollout.rates import Z95, Interval

DRAWS = 2_000
# 97.5% quantiles of Student's t with 1, 2 ... degrees of freedom.
STUDENT = (12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281)
Part = tuple[str, float, float]  # question, part of the sum, part of the weight
Table = dict[str, tuple[float, float]]  # sums of both by question


def ratio(parts: Iterable[Part]) -> float | None:
    """Sum of parts over sum of weights; None where there is no weight."""
    total = weight = 0.0
    for _, part, size in parts:
        total, weight = total + part, weight + size
    return total / weight if weight else None


def bootstrap(parts: Sequence[Part]) -> Interval | None:
    """Percentile interval of ``ratio(parts)`` over draws of whole questions; None where there is no weight."""
    return seeds_interval([parts])


def seeds_interval(seeds: Sequence[Sequence[Part]]) -> Interval | None:
    """95% interval of the mean over seeds of each seed's ratio; None where a seed has no weight.

    One seed: the bootstrap, which speaks of the questions alone. Several: Student's t over the seeds, with S - 1
    degrees of freedom, and the normal interval over the questions, their squares added. The seeds' own spread holds a
    share of the questions' chance too, so the interval is on the wide side where seeds do not differ.
    """
    return _interval([seeds])


def seeds_difference(before: Sequence[Sequence[Part]], after: Sequence[Sequence[Part]]) -> Interval | None:
    """The same for the mean over the seeds ``after`` minus that over ``before``, on the same questions."""
    return _interval([before, after])


def _interval(sides: Sequence[Sequence[Sequence[Part]]]) -> Interval | None:
    """Of the last side's mean, minus the first one's where there are two."""
    tables = [[_by_question(parts) for parts in seeds] for seeds in sides]
    if not all(map(_all_weigh, tables)):
        return None
    if all(len(seeds) == 1 for seeds in tables):
        drawn = [_drawn_ratios(seeds[0]) for seeds in tables]
        return _middle(drawn[-1] - drawn[0] if len(drawn) == 2 else drawn[0])
    value, seed_part = 0.0, 0.0
    apart: dict[str, float] = defaultdict(float)
    for sign, seeds in zip((-1.0, 1.0)[-len(tables) :], tables, strict=True):
        ratios = np.array([_total(table) for table in seeds])
        value += sign * float(ratios.mean())
        if len(seeds) > 1:
            seed_part += student(len(seeds) - 1) ** 2 * float(ratios.var(ddof=1)) / len(seeds)
        for table, centre in zip(seeds, ratios, strict=True):
            for question, deviation in _deviations(table, float(centre)).items():
                apart[question] += sign * deviation / len(seeds)
    questions = sum(each * each for each in apart.values()) * len(apart) / max(1, len(apart) - 1)
    half = math.sqrt(seed_part + Z95**2 * questions)
    return value - half, value + half


def _deviations(table: Table, centre: float) -> dict[str, float]:
    """What each question adds to the distance of a seed's ratio from its expectation (linear in the question)."""
    weight = sum(size for _, size in table.values())
    return {question: (part - centre * size) / weight for question, (part, size) in table.items()}


def _total(table: Table) -> float:
    return sum(part for part, _ in table.values()) / sum(size for _, size in table.values())


def _drawn_ratios(table: Table) -> np.ndarray:
    """The ratio over drawn questions, (DRAWS,); NaN where a draw has no weight."""
    sums = _drawn(len(table)) @ np.array([table[question] for question in sorted(table)])
    with np.errstate(invalid="ignore", divide="ignore"):
        return sums[:, 0] / sums[:, 1]


def student(freedom: int) -> float:
    """97.5% quantile of Student's t; beyond the table by an expansion that is right to three places."""
    if freedom <= len(STUDENT):
        return STUDENT[freedom - 1]
    first = (Z95**3 + Z95) / 4
    second = (5 * Z95**5 + 16 * Z95**3 + 3 * Z95) / 96
    third = (3 * Z95**7 + 19 * Z95**5 + 17 * Z95**3 - 15 * Z95) / 384
    return Z95 + first / freedom + second / freedom**2 + third / freedom**3


def _all_weigh(tables: Sequence[Table]) -> bool:
    return bool(tables) and all(sum(size for _, size in table.values()) for table in tables)


def _middle(statistic: np.ndarray) -> Interval | None:
    """The middle 95% of what was drawn."""
    known = statistic[~np.isnan(statistic)]
    if not len(known):
        return None
    low, high = np.quantile(known, [0.025, 0.975])
    return float(low), float(high)


@lru_cache(maxsize=16)  # the metrics of a run draw from the same questions
def _drawn(count: int) -> np.ndarray:
    """How often each of ``count`` questions comes up when as many are drawn: (DRAWS, count)."""
    draws = np.random.default_rng([0, count])
    return draws.multinomial(count, np.full(count, 1 / count), DRAWS).astype(float)


def _by_question(parts: Iterable[Part]) -> Table:
    table: Table = defaultdict(lambda: (0.0, 0.0))
    for question, part, size in parts:
        total, weight = table[question]
        table[question] = total + part, weight + size
    return dict(table)


def paired_difference(before: Sequence[float], after: Sequence[float], rate: bool = True) -> tuple[float, Interval]:
    """Mean of after - before over the same questions, and its 95% interval.

    ``rate``: values are in [0, 1], right or wrong or a question's share; the interval is Bonett and Price's ("Adjusted
    Wald confidence interval for a difference of binomial proportions based on paired data", 2012): as if two more
    questions had come out one for either side, so that it has a width where no question tells the two apart. Else
    Student's t. ValueError where the two are not of one length of two or more.
    """
    n = len(before)
    if n != len(after) or n < 2:
        raise ValueError(f"a paired difference needs the same two or more questions, got {n} and {len(after)}")
    differences = [float(b) - float(a) for a, b in zip(before, after, strict=True)]
    mean = sum(differences) / n
    if not rate:
        half = student(n - 1) * math.sqrt(sum((d - mean) ** 2 for d in differences) / (n - 1) / n)
        return mean, (mean - half, mean + half)
    middle, squares = sum(differences) / (n + 2), (sum(d * d for d in differences) + 2) / (n + 2)
    half = Z95 * math.sqrt((squares - middle**2) / (n + 2))
    return mean, (max(-1.0, middle - half), min(1.0, middle + half))
