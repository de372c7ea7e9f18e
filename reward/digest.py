"""Result digests: enough of a result, in bounded size, to tell in another process whether two results are equal.

The candidates of one group may be scored in different processes, and agreement needs all of them. A digest holds a
hash of the exact rows; where tolerance may matter (a number is in the result) and the result is small, also the rows
themselves, so that the comparison is the comparator's own; of a large one two hashes of rounded rows instead. Those
never take different results for equal, and miss equal ones only where numbers differ by more than rounding noise.
"""

import marshal
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from math import floor, frexp, isfinite, ldexp
from typing import Any, NamedTuple

from sqale_grpo.env.sandbox import QueryResult
from sqale_grpo.reward.compare import same_results
from sqale_grpo.reward.tolerance import ABSOLUTE

Row = tuple[Any, ...]

KEPT_CELLS = 2_048
KEPT_CHARS = 24  # longer text and blobs are kept as their hash
GRID_BITS = 32  # two reals in one cell differ by less than 2**-31 of themselves; the comparator allows twice that

WHOLE = 2.0**40  # beyond it, rounding noise may reach the next whole number


class Grid(NamedTuple):
    """``offset`` shifts the cells' edges; up to ``zero`` a number is 0, up to ``snap`` (relative) it is whole."""

    offset: float
    zero: float
    snap: float


NEAREST, BELOW = Grid(0.5, ABSOLUTE / 2, 2e-10), Grid(0.25, ABSOLUTE / 4, 6e-11)


@dataclass(frozen=True, slots=True)
class Digest:
    """``exact`` and ``rounded`` are hashes; ``rows`` are kept of a small result with numbers, else None."""

    width: int
    height: int
    ordered: bool
    has_real: bool
    exact: bytes
    rows: list[Row] | None
    rounded: tuple[bytes, bytes] | None


def digest(result: QueryResult, ordered: bool) -> Digest:
    """Digest a whole result; ``ordered``: its rows count as a sequence, as the group's gold query fixes."""
    rows, width = result.rows, len(result.columns)
    kinds = {kind for column in zip(*rows, strict=True) for kind in set(map(type, column))}
    small = len(rows) * width <= KEPT_CELLS
    numbers = bool(kinds & {int, float})
    return Digest(
        width=width,
        height=len(rows),
        ordered=ordered,
        has_real=float in kinds,
        exact=hash_rows(rows, ordered),
        rows=[tuple(map(kept, row)) for row in rows] if numbers and small else None,
        rounded=rounded_hashes(rows, ordered) if numbers and not small else None,
    )


def same_digest(a: Digest, b: Digest) -> bool:
    """Are the two results equal, as the comparator sees it?"""
    if (a.width, a.height) != (b.width, b.height):
        return False
    if a.exact == b.exact:
        return True
    if not (a.has_real or b.has_real):
        return False
    if a.rows is not None and b.rows is not None:
        return same_results(a.rows, b.rows, a.ordered)
    return a.rounded is not None and b.rounded is not None and any(map(bytes.__eq__, a.rounded, b.rounded))


def result_classes(digests: Sequence[Digest | None]) -> list[int | None]:
    """For each result the number of its class, None for one that does not exist."""
    classes: list[int | None] = [None if each is None else index for index, each in enumerate(digests)]
    for i, each in enumerate(digests):
        for j, other in enumerate(digests[:i]):
            if each is not None and other is not None and classes[i] != classes[j] and same_digest(each, other):
                old, new = classes[i], classes[j]
                classes = [new if number == old else number for number in classes]
    return classes


def hash_rows(rows: Iterable[Row], ordered: bool) -> bytes:
    """16 bytes that depend on the rows' values and types, and on their order where ``ordered``."""
    # Format 2 has no references between equal objects: the bytes depend on the values alone.
    parts = [marshal.dumps(row, 2) for row in rows]
    return blake2b(b"".join(parts if ordered else sorted(parts)), digest_size=16).digest()


def kept(value: Any) -> Any:
    """A value as it is, or, if it is long, something short that equals only the same value's."""
    if isinstance(value, str | bytes) and len(value) > KEPT_CHARS:
        return type(value).__name__, hash_rows([(value,)], True)
    return value


def rounded_hashes(rows: Sequence[Row], ordered: bool) -> tuple[bytes, bytes]:
    """Hashes over two grids of numbers, whose edges lie apart: a value at one grid's edge is inside the other's."""
    nearest, below = (
        hash_rows([tuple([rounded(v, grid) if type(v) is float else v for v in row]) for row in rows], ordered)
        for grid in (NEAREST, BELOW)
    )
    return nearest, below


def rounded(value: float, grid: Grid) -> float | int:
    """The number on a grid; next to a whole number that number as an integer, which it may have to equal."""
    if not isfinite(value):
        return value
    if abs(value) <= grid.zero:
        return 0
    whole = floor(value + grid.offset)
    if abs(value) < WHOLE and abs(value - whole) <= grid.snap * abs(value):
        return whole
    mantissa, exponent = frexp(value)
    cell, shift = floor(ldexp(mantissa, GRID_BITS) + grid.offset), exponent - GRID_BITS
    if shift >= 0:
        return cell << shift  # also where it is larger than any real
    value = ldexp(cell, shift)
    return int(value) if value.is_integer() else value
