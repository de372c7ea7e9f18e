"""Names of a schema as a person says them: words, without the prefixes that a whole schema or table shares."""

import re
from collections.abc import Sequence

from sqale_grpo.corpus.own.keys import singular

UNITS = frozenset({"kg", "cm", "mm", "km", "m", "g", "lb", "usd", "eur", "pct", "ms"})
FEWEST = 3  # names that make a prefix
_IRREGULAR = {"hero": "heroes", "person": "people", "child": "children"}


def words(name: str) -> list[str]:
    """``OrderItems`` and ``order_items`` as order, items."""
    parted = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", " ", name)
    found = re.split(r"[^0-9A-Za-z\u0080-\uffff']+", parted)
    return [word.lower() for word in found if word] or [name]


def titles(names: Sequence[str]) -> list[str]:
    """Each name in words, without those at the beginning that all of them share; none is left empty."""
    parted = [words(name) for name in names]
    shared = 0
    while len(parted) >= FEWEST and all(
        len(each) > shared + 1 and each[shared] == parted[0][shared] for each in parted
    ):
        shared += 1
    return [_title(each[shared:]) for each in parted]


def _title(parts: list[str]) -> str:
    *rest, last = parts
    return f"{' '.join(rest)} ({last})" if rest and last in UNITS else " ".join(parts)


def one(title: str) -> str:
    """One row of a table: "order item"."""
    *rest, last = title.split()
    return " ".join([*rest, singular(last)])


def many(title: str) -> str:
    """Several rows: "order items"."""
    name = one(title)
    if name != title:
        return title
    *rest, last = title.split()
    stem = next((stem for stem in _IRREGULAR if last.endswith(stem)), None)
    if stem is not None:
        plural = last.removesuffix(stem) + _IRREGULAR[stem]
    elif last.endswith("y") and last[-2:-1] not in "aeiou":
        plural = f"{last[:-1]}ies"
    else:
        plural = f"{last}es" if last.endswith(("s", "x", "ch", "sh")) else f"{last}s"
    return " ".join([*rest, plural])
