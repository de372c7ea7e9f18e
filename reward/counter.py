"""A counter-database's rows: the gold tables' rows changed by a seed, their keys and constraints kept.

Of every table: foreign keys redrawn among the values that they have, columns that are no key shuffled, values that the
gold query compares with and their neighbours put into some rows (``reward.counter_plan``), and rows doubled under new
keys. All is a pure function of the rows, the plan and the seed. A row that a constraint of the table would refuse is
left as it was (``reward.counter_build``).
"""

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from sqale_grpo.env.chance import rng
from sqale_grpo.env.text import fold_name

Row = list[Any]
Column = tuple[str, str]  # folded names of a table and of one of its columns
MOST_HOT = 40  # rows that get the gold's values
KEY_NAME = re.compile(r"(^|_)(id|ids|code|key|no|nr|number|uuid|guid)$|(?<=[a-z])(Id|ID|Code|Key)$")


@dataclass(frozen=True)
class CopyPlan:
    """``tables``: the gold tables, as declared. ``values``: by column the values to put there, the gold's own first.

    ``joined``: columns that the gold sets equal to others: they are keys, whether declared or not.
    """

    tables: tuple[str, ...]
    values: Mapping[Column, tuple[Any, ...]]
    joined: frozenset[Column]


@dataclass(frozen=True)
class Foreign:
    """A foreign key: places of its columns, the parent (folded), names of the parent's columns (folded)."""

    places: tuple[int, ...]
    parent: str
    columns: tuple[str, ...]


@dataclass(frozen=True)
class TableFacts:
    """A table as far as changes must know it; ``primary``, ``unique``, ``referenced``: places of columns."""

    name: str
    columns: tuple[str, ...]
    primary: tuple[int, ...]
    unique: frozenset[int]
    foreign: tuple[Foreign, ...]
    referenced: frozenset[int]


@dataclass
class Changed:
    """A table's new rows: the old ones in order, changed, then new ones. ``hot``: those with the gold's values."""

    rows: list[Row]
    old: int
    hot: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Strength:
    """How much of a table a copy changes, drawn by its seed: shares of rows, or the chance of a column."""

    shuffle: float
    redraw: float
    hot: float
    doubled: float

    @classmethod
    def of(cls, seed: int) -> "Strength":
        """The strength of one seed's copies."""
        chance = rng("counter-database", seed)
        return cls(
            chance.uniform(0.6, 1.0), chance.uniform(0.5, 0.9), chance.uniform(0.2, 0.6), chance.uniform(0.2, 0.6)
        )


def change_tables(
    tables: Sequence[tuple[TableFacts, Sequence[tuple]]], plan: CopyPlan, seed: int
) -> dict[str, Changed]:
    """New rows of the gold tables, by folded name; parents come before their children in ``tables``."""
    strength = Strength.of(seed)
    changed: dict[str, Changed] = {}
    facts_of = {fold_name(facts.name): facts for facts, _ in tables}
    for facts, rows in tables:
        name = fold_name(facts.name)
        chance = rng("counter-database", seed, name)
        changed[name] = change(facts, rows, plan, strength, chance, changed, facts_of)
    return changed


def change(
    facts: TableFacts,
    rows: Sequence[tuple],
    plan: CopyPlan,
    strength: Strength,
    chance: random.Random,
    parents: dict[str, Changed],
    facts_of: dict[str, TableFacts],
) -> Changed:
    """The new rows of one table; ``parents``: those of the tables before it."""
    new = Changed([list(row) for row in rows], len(rows))
    if not rows:
        return new
    hot = max(1, round(min(len(rows), MOST_HOT) * strength.hot))
    new.hot = sorted(chance.sample(range(len(rows)), hot))
    keys = key_places(facts, plan)
    for place in range(len(facts.columns)):
        if place not in keys and chance.random() < strength.shuffle:
            shuffle_column(new.rows, place, chance)
    redraw(facts, rows, new, plan, strength, chance, parents, facts_of)
    for index in new.hot:
        put_values(facts, new.rows, index, keys, plan, chance)
    double(facts, new, keys, strength, chance)
    return new


def key_places(facts: TableFacts, plan: CopyPlan) -> set[int]:
    """Places of columns that are a key, declared or by their name or use."""
    table = fold_name(facts.name)
    keys = {
        *facts.primary,
        *facts.unique,
        *facts.referenced,
        *(place for each in facts.foreign for place in each.places),
    }
    return keys | {
        place
        for place, name in enumerate(facts.columns)
        if KEY_NAME.search(name) or (table, fold_name(name)) in plan.joined
    }


def shuffle_column(rows: list[Row], place: int, chance: random.Random) -> None:
    """Deal a column's values out anew."""
    values = [row[place] for row in rows]
    chance.shuffle(values)
    for row, value in zip(rows, values, strict=True):
        row[place] = value


def redraw(
    facts: TableFacts,
    rows: Sequence[tuple],
    new: Changed,
    plan: CopyPlan,
    strength: Strength,
    chance: random.Random,
    parents: dict[str, Changed],
    facts_of: dict[str, TableFacts],
) -> None:
    """Let rows refer to other parents, hot rows to hot ones where they can; a key that is unique stays.

    Only values that the column has are drawn, so that no reference is lost to a table that the copy leaves alone.
    """
    fixed = {*facts.primary, *facts.unique}
    declared = {place for each in facts.foreign for place in each.places}
    groups = [each for each in facts.foreign if not fixed & set(each.places)]
    groups += [
        Foreign((place,), "", ())
        for place, name in enumerate(facts.columns)
        if (fold_name(facts.name), fold_name(name)) in plan.joined
        and place not in fixed | declared | facts.referenced
        and len({row[place] for row in rows}) < len(rows)
    ]
    hot = set(new.hot)
    for group in groups:
        values = keys_of(rows, group.places)
        kept = parent_keys(group, parents, facts_of, hot_only=False)
        pool = values if kept is None else [each for each in values if each in kept or None in each] or values
        wanted = parent_keys(group, parents, facts_of, hot_only=True)
        favoured = [each for each in pool if each in wanted] if wanted else []
        for index, row in enumerate(new.rows):
            lost = kept is not None and values[index] not in kept and None not in values[index]
            if lost or chance.random() < strength.redraw:
                drawn = chance.choice(favoured if favoured and index in hot and chance.random() < 0.6 else pool)
                for place, value in zip(group.places, drawn, strict=True):
                    row[place] = value


def keys_of(rows: Sequence[Sequence[Any]], places: Sequence[int]) -> list[tuple]:
    """What rows hold at some places."""
    if len(places) == 1:
        (place,) = places
        return [(row[place],) for row in rows]
    return [tuple(row[place] for place in places) for row in rows]


def parent_keys(
    group: Foreign, parents: dict[str, Changed], facts_of: dict[str, TableFacts], hot_only: bool
) -> set[tuple] | None:
    """Keys of a parent's rows, or of its hot ones; None where the parent is no gold table before this one."""
    if group.parent not in parents or not group.columns:
        return None
    new, names = parents[group.parent], [fold_name(name) for name in facts_of[group.parent].columns]
    if not set(group.columns) <= set(names):
        return None
    places = [names.index(name) for name in group.columns]
    return set(keys_of([new.rows[index] for index in new.hot] if hot_only else new.rows[: new.old], places))


def put_values(
    facts: TableFacts, rows: list[Row], index: int, keys: set[int], plan: CopyPlan, chance: random.Random
) -> None:
    """Most columns that the gold compares get one of its values, or a neighbour; a key only a value that it has."""
    for place, name in enumerate(facts.columns):
        values = plan.values.get((fold_name(facts.name), fold_name(name)))
        if not values or place in facts.primary or place in facts.unique or place in facts.referenced:
            continue
        if place in keys:
            known = {row[place] for row in rows}
            values = tuple(value for value in values if value in known)
        if values and chance.random() < 0.85:
            rows[index][place] = values[0] if chance.random() < 0.4 else chance.choice(values)


def double(facts: TableFacts, new: Changed, keys: set[int], strength: Strength, chance: random.Random) -> None:
    """Append copies of rows, half of them of hot ones, under new keys; some differ in one more column."""
    free = [place for place in range(len(facts.columns)) if place not in keys]
    fresh = {place: Fresh([row[place] for row in new.rows]) for place in {*facts.primary, *facts.unique}}
    foreign = {place for each in facts.foreign for place in each.places}
    for _ in range(max(1, round(min(new.old, 10 * MOST_HOT) * strength.doubled))):
        source = chance.choice(new.hot) if chance.random() < 0.5 else chance.randrange(new.old)
        row = list(new.rows[source])
        for place in free if chance.random() < 0.5 else ():
            if chance.random() < 1 / len(free):
                row[place] = new.rows[chance.randrange(new.old)][place]
        for place, values in fresh.items():
            if len(facts.primary) > 1 and place in foreign:
                row[place] = new.rows[chance.randrange(new.old)][place]
            elif len(facts.primary) == 1 or place in facts.unique or place not in foreign:
                row[place] = values.next(row[place])
        new.rows.append(row)


class Fresh:
    """Values that a column does not have yet, of the kind of one that it has."""

    def __init__(self, values: Sequence[Any]) -> None:
        numbers = [value for value in values if isinstance(value, int | float)]
        self._number = max(numbers, default=0)
        self._text = count(1)

    def next(self, value: Any) -> Any:
        """One more value like ``value``; NULL stays."""
        if value is None:
            return None
        if isinstance(value, int | float):
            self._number += 1
            return self._number
        number = next(self._text)
        return value + (f"~{number}".encode() if isinstance(value, bytes) else f"~{number}")
