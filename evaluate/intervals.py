"""95% intervals: Wilson for the rate of independent answers, paired for two runs, bootstrap for all else.

A rate or a mean is a sum of parts over a sum of weights (1 a part for a mean). The parts of one question belong
together: the bootstrap draws whole questions, and of several seeds of one policy it draws the seeds as well.
All draws are seeded: the same rows give the same interval, in whatever order they come.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import lru_cache

import numpy as np

Z95 = 1.959964
DRAWS = 2_000
Interval = tuple[float, float]
Part = tuple[str, float, float]  # question, part of the sum, part of the weight
Table = dict[str, tuple[float, float]]  # sums of both by question


def wilson(successes: int, n: int) -> Interval:
    """Wilson's 95% interval of a rate."""
    rate, z2 = successes / n, Z95**2
    middle = (rate + z2 / (2 * n)) / (1 + z2 / n)
    half = Z95 / (1 + z2 / n) * math.sqrt(rate * (1 - rate) / n + z2 / (4 * n * n))
    return max(0.0, middle - half), min(1.0, middle + half)


def ratio(parts: Iterable[Part]) -> float | None:
    """Sum of parts over sum of weights; None where there is no weight."""
    total = weight = 0.0
    for _, part, size in parts:
        total, weight = total + part, weight + size
    return total / weight if weight else None


def bootstrap(parts: Sequence[Part]) -> Interval | None:
    """Percentile interval of ``ratio(parts)`` over draws of whole questions; None where there is no weight."""
    return bootstrap_seeds([parts])


def bootstrap_seeds(seeds: Sequence[Sequence[Part]]) -> Interval | None:
    """Percentile interval of the mean over seeds of each seed's ratio, over draws of seeds and of questions.

    A question that several seeds answered is drawn for all of them at once (seeds and questions are crossed: Owen,
    "The pigeonhole bootstrap", 2007); a question of one seed alone for that one. Few drawn seeds vary less than seeds
    do: their deviations are scaled by sqrt(S / (S - 1)). With one seed the interval speaks of the questions alone.
    """
    tables = [_by_question(parts) for parts in seeds]
    return _middle(_statistics([tables])[0]) if _all_weigh(tables) else None


def bootstrap_difference(before: Sequence[Sequence[Part]], after: Sequence[Sequence[Part]]) -> Interval | None:
    """The same for the mean over the seeds ``after`` minus that over ``before``, on the same questions.

    A draw takes the same questions for both; the seeds of the two are drawn apart.
    """
    sides = [[_by_question(parts) for parts in seeds] for seeds in (before, after)]
    if not all(map(_all_weigh, sides)):
        return None
    first, second = _statistics(sides)
    return _middle(second - first)


def _statistics(sides: Sequence[Sequence[Table]]) -> list[np.ndarray]:
    """For every side its drawn means over seeds, (DRAWS,); NaN where a draw has no weight."""
    tables = [table for side in sides for table in side]
    names = [sorted(table) for table in tables]
    crossed = any(tables[0].keys() & table for table in tables[1:])
    if crossed:  # a question that a seed did not answer weighs nothing there
        names = [sorted(set().union(*tables))] * len(tables)
    means = np.empty((DRAWS, len(tables)))
    weights = np.empty(0)
    for number, (table, questions) in enumerate(zip(tables, names, strict=True)):
        if not number or not crossed:
            weights = _drawn(len(questions), number)
        sums = weights @ np.array([table.get(question, (0.0, 0.0)) for question in questions])
        with np.errstate(invalid="ignore", divide="ignore"):
            means[:, number] = sums[:, 0] / sums[:, 1]
    statistics, start = [], 0
    for number, side in enumerate(sides):
        own = means[:, start : start + len(side)]
        centre, count = own.mean(1), len(side)
        spread = math.sqrt(count / (count - 1)) if count > 1 else 0.0
        statistics.append(centre + spread * ((_drawn(count, len(tables) + number) / count * own).sum(1) - centre))
        start += count
    return statistics


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
def _drawn(count: int, stream: int) -> np.ndarray:
    """How often each of ``count`` things comes up when as many are drawn: (DRAWS, count), other ones a ``stream``."""
    draws = np.random.default_rng([stream, count])
    return draws.multinomial(count, np.full(count, 1 / count), DRAWS).astype(float)


def _by_question(parts: Iterable[Part]) -> Table:
    table: Table = defaultdict(lambda: (0.0, 0.0))
    for question, part, size in parts:
        total, weight = table[question]
        table[question] = total + part, weight + size
    return dict(table)


def paired_difference(before: Sequence[float], after: Sequence[float]) -> tuple[float, Interval]:
    """Mean of after - before over the same questions, and its 95% interval (normal approximation).

    ValueError where the two are not of one length of two or more.
    """
    n = len(before)
    if n != len(after) or n < 2:
        raise ValueError(f"a paired difference needs the same two or more questions, got {n} and {len(after)}")
    differences = [float(b) - float(a) for a, b in zip(before, after, strict=True)]
    mean = sum(differences) / n
    spread = math.sqrt(sum((d - mean) ** 2 for d in differences) / (n - 1) / n)
    return mean, (mean - Z95 * spread, mean + Z95 * spread)
