"""The benchmarks' own verdicts, for figures that can be held against published ones.

Both are looser than ours. BIRD's is a comparison of sets: repeated rows and the order do not count. EHRSQL's looks at
the first 100 rows as Python prints them, in any order: reals must agree to the last digit, and 1 is not 1.0.
"""

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

Row = tuple[Any, ...]
EHRSQL_ROWS = 100


def bird_match(prediction: Iterable[Row], gold: Iterable[Row]) -> bool:
    """BIRD's execution accuracy (its ``evaluation.py``): the same set of rows."""
    return set(prediction) == set(gold)


def ehrsql_match(prediction: Sequence[Row], gold: Sequence[Row]) -> bool:
    """EHRSQL's execution accuracy (its ``evaluate.py``): the first 100 rows, as text and sorted, are the same."""
    return printed(prediction) == printed(gold)


def printed(rows: Sequence[Row]) -> list[str]:
    """The first 100 rows as Python prints them, sorted."""
    return sorted(map(str, islice(rows, EHRSQL_ROWS)))
