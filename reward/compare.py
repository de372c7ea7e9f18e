"""Result comparison: rows as a multiset or as a sequence, values by SQLite's types, numbers within a tolerance.

Rules (ours, where the card says only "matches"): rows that tie in the gold query's ORDER BY have no order among
themselves; integers equal integers exactly; where one side is a real, a
relative difference of 1e-9 or an absolute one of 1e-12 is allowed; text, blobs and NULL equal themselves. Columns
count by position, not by name. Exact comparison comes first and is linear; ``reward.matching`` is asked only where
reals leave rows unmatched.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqale_grpo.env.sandbox import QueryResult
from sqale_grpo.reward.matching import Match, match_near
from sqale_grpo.reward.tolerance import same_value

CELL_CHARS, ROW_CHARS = 40, 160

Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    """``f1`` is in [0, 1], over row multisets also where order decides; ``difference`` says what differs first."""

    equivalent: bool
    f1: float
    difference: str | None


def same_row(a: Row, b: Row) -> bool:
    """Are two rows of one width equal, value by value?"""
    return a == b or all(map(same_value, a, b))


def compare(prediction: QueryResult, gold: QueryResult, ordered: bool, ties: Sequence[int] = ()) -> Comparison:
    """Compare an answer's rows with the gold query's; ``ordered``: the gold query fixes their order.

    ``ties``: sizes of the groups of gold rows with equal order keys, whose order among themselves is free; () where
    every row is a group of its own.
    """
    ours, width = prediction.rows, len(prediction.columns)
    theirs, gold_width = gold.rows, len(gold.columns)
    if width != gold_width:
        return Comparison(False, 0.0, f"{counted(width, 'column')}, the gold result has {gold_width}")
    if ours == theirs:
        return Comparison(True, 1.0, None)
    wrong = first_out_of_order(ours, theirs, ties) if ordered and len(ours) == len(theirs) else None
    if ordered and len(ours) == len(theirs) and wrong is None:
        return Comparison(True, 1.0, None)
    match = match_rows(ours, theirs)
    f1 = 2 * match.size / (len(ours) + len(theirs))
    if match.size < max(len(ours), len(theirs)):
        return Comparison(False, f1, difference(match, len(ours), len(theirs)))
    if wrong is None:
        return Comparison(True, 1.0, None)
    places = f"row {wrong + 1} is {shown(ours[wrong])}, the gold result has {shown(theirs[wrong])}"
    return Comparison(False, f1, f"the right rows in another order: {places}")


def match_rows(left: Sequence[Row], right: Sequence[Row]) -> Match:
    """A largest one-to-one matching of equal rows of one width."""
    left_counts, right_counts = Counter(left), Counter(right)
    if left_counts == right_counts:
        return Match(len(left), None, None)
    floats = float_columns(left, right)
    if floats:
        return match_near(left, right, floats, same_value)
    size = sum(min(count, right_counts[row]) for row, count in left_counts.items() if row in right_counts)
    return Match(size, surplus(left_counts, right_counts), surplus(right_counts, left_counts))


def same_results(left: Sequence[Row], right: Sequence[Row], ordered: bool, ties: Sequence[int] = ()) -> bool:
    """Are two results of one width equal, as sequences (of groups of tied rows) or as multisets?"""
    if len(left) != len(right):
        return False
    if ordered:
        return first_out_of_order(left, right, ties) is None
    return match_rows(left, right).size == len(left)


def first_out_of_order(left: Sequence[Row], right: Sequence[Row], ties: Sequence[int] = ()) -> int | None:
    """Index of the first row, or group of tied rows, that differs from its counterpart in a result of one length."""
    if not ties:
        pairs = zip(left, right, strict=True)
        return next((index for index, (a, b) in enumerate(pairs) if not same_row(a, b)), None)
    start = 0
    for size in ties:
        end = start + size
        if left[start:end] != right[start:end] and match_rows(left[start:end], right[start:end]).size < size:
            return start
        start = end
    return None


def float_columns(*results: Sequence[Row]) -> list[int]:
    """Positions of the columns in which any of the results holds a real number."""
    found: set[int] = set()
    for rows in results:
        found.update(index for index, column in enumerate(zip(*rows, strict=True)) if float in set(map(type, column)))
    return sorted(found)


def surplus(counts: Counter, others: Counter) -> Row | None:
    """The first row that occurs more often than among the others."""
    return next((row for row, count in counts.items() if count > others.get(row, 0)), None)


def difference(match: Match, size: int, gold_size: int) -> str:
    """What a matching of two multisets leaves over, with an example of each side."""
    extra, missing = size - match.size, gold_size - match.size
    parts = []
    if extra:
        parts.append(f"{extra} of {counted(size, 'row')} not in the gold result, e.g. {shown(match.extra)}")
    if missing:
        parts.append(f"{missing} of {counted(gold_size, 'gold row')} missing, e.g. {shown(match.missing)}")
    return "; ".join(parts)


def counted(number: int, noun: str) -> str:
    """``1 row``, ``2 rows``."""
    return f"{number} {noun}" + ("" if number == 1 else "s")


def shown(row: Row | None) -> str:
    """A row for a message, long values and long rows cut."""
    cells = []
    for value in (row or ())[:ROW_CHARS]:
        text = repr(value[: CELL_CHARS + 1] if isinstance(value, str | bytes) else value)
        cells.append(text if len(text) <= CELL_CHARS else text[:CELL_CHARS] + "…")
    text = f"({', '.join(cells)})"
    return text if len(text) <= ROW_CHARS else text[:ROW_CHARS] + "…"
