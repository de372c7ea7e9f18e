"""Length buckets: questions grouped by the masked length of their gold SQL.

Masked SQL: a query with its literals taken out, whose length says how long its structure is.
"""

import re
from array import array
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

# One alternative a thing that changes or that must be skipped whole: quoted names keep their digits and spaces.
# The look-ahead drops most characters at once and a lone space is no gap: 5 us a query instead of 16.
_PIECES = re.compile(
    r"""
    (?=[\s"'`\[xX\d.\-/])
    (?: (?P<gap>(?![ ](?![\s/-]))(?:\s|--[^\n]*|/\*.*?(?:\*/|\Z))+)
      | (?P<name>"(?:[^"]|"")*"? | `(?:[^`]|``)*`? | \[[^\]]*\]?)
      | (?P<literal>
            (?:(?<![\w$])[xX])?'(?:[^']|'')*'?
          | (?<![\w$?:@\#])(?:0[xX][0-9a-fA-F]+ | (?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)
        )
    )
    """,
    re.VERBOSE | re.DOTALL,
)
_REPLACEMENT = {"gap": " ", "literal": "?"}


def masked_sql(sql: str) -> str:
    """The query with each string, blob and number literal as ``?``, folded white space, no comments, no final ``;``.

    Text in double quotes stays: SQL says that it is a name, and only the schema could say that SQLite reads it
    as a string. A sign stays before its number. What "masked" means is not published: our assumption.
    """
    masked = _PIECES.sub(lambda piece: _REPLACEMENT.get(piece.lastgroup or "", piece.group()), sql)
    return masked.strip().rstrip("; ")


def masked_length(sql: str) -> int:
    """Length of ``masked_sql`` in characters: what the length curriculum sorts questions by."""
    return len(masked_sql(sql))


NAMES = ("short", "medium", "long", "very_long")


@dataclass(frozen=True)
class Buckets:
    """Four groups of question indices, split at the corpus' own percentiles of masked length (card).

    ``bounds``: the percentiles' lengths in characters; a question goes to the first bucket whose bound is not
    below its length, so equal lengths share a bucket. ``bucket_of[i]``: bucket number of question i.
    ``members[b]``: the questions of bucket b in rising order; it may be empty where many lengths are equal.
    """

    bounds: tuple[float, ...]
    bucket_of: bytes
    members: tuple[Sequence[int], ...]
    names: tuple[str, ...] = NAMES

    @classmethod
    def from_lengths(cls, lengths: Sequence[int], percentiles: Sequence[float] = (50, 80, 95)) -> "Buckets":
        """Buckets of the questions whose masked lengths are given, in the order of their indices."""
        _check_percentiles(percentiles)
        if not lengths:
            raise ValueError("the corpus has no question, so there are no length buckets; check its prepared folder")
        ordered = sorted(lengths)
        bounds = tuple(_percentile(ordered, percentile) for percentile in percentiles)
        bucket_of = bytes(bisect_left(bounds, length) for length in lengths)
        members = tuple(array("I") for _ in NAMES)
        for index, bucket in enumerate(bucket_of):
            members[bucket].append(index)
        return cls(bounds, bucket_of, members)

    @property
    def shares(self) -> tuple[float, ...]:
        """The natural shares: the part of the corpus that each bucket holds."""
        return tuple(len(members) / len(self.bucket_of) for members in self.members)


def _check_percentiles(percentiles: Sequence[float]) -> None:
    rising = all(low < high for low, high in zip(percentiles, percentiles[1:], strict=False))
    if len(percentiles) != len(NAMES) - 1 or not rising or not 0 < percentiles[0] < percentiles[-1] < 100:
        raise ValueError(f"percentiles must be {len(NAMES) - 1} rising numbers between 0 and 100, not {percentiles}")


def _percentile(ordered: Sequence[int], percentile: float) -> float:
    """Linear interpolation between the two nearest ranks, the usual definition (numpy's default)."""
    position = (len(ordered) - 1) * percentile / 100
    low = int(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (position - low)
