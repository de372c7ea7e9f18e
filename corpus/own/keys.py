"""Foreign keys that nobody declared: columns whose values all occur in another table's key, and whose names fit.

A column of small numbers is included in every table's key, so values alone prove nothing: the name has to point at
the table (``customer_id``, ``customer``, ``billing_customer_id`` at ``customers.id``), or the key has to be text of
many values.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from sqale_grpo.corpus.own.tables import DatabaseSource, QueryFailed, SourceTable, TableKey
from sqale_grpo.env.text import fold_name

FEWEST_TEXTS = 5  # different values that a column needs where its name points nowhere
_PLURALS = (("ies", "y"), ("sses", "ss"), ("xes", "x"), ("ches", "ch"), ("shes", "sh"), ("s", ""))


@dataclass(frozen=True)
class FoundKey:
    """A key of one column that the values allow. ``named``: the column's name says so too."""

    table: str
    key: TableKey
    named: bool

    def __str__(self) -> str:
        return f"{self.table}.{self.key.columns[0]} -> {self.key.parent}.{self.key.parent_columns[0]}"


def find_keys(source: DatabaseSource, tables: list[SourceTable]) -> list[FoundKey]:
    """Keys of one column each, those that names point at first; none for a column that has one already."""
    found = []
    for table in tables:
        keyed = {fold_name(column) for key in table.foreign_keys for column in key.columns}
        for column in table.columns:
            if fold_name(column.name) in keyed:
                continue
            best = next(_included(source, tables, table, column.name, column.kind), None)
            if best is not None:
                found.append(best)
    return sorted(found, key=lambda each: not each.named)


def _included(
    source: DatabaseSource, tables: list[SourceTable], table: SourceTable, column: str, kind: str
) -> Iterator[FoundKey]:
    """The keys that fit a column, the likeliest first."""
    candidates = [
        (points_at(column, parent, key), parent, key)
        for parent, key in _single_keys(tables)
        if _kind_of(parent, key) == kind and (parent is not table or fold_name(key) != fold_name(column))
    ]
    own_key = table.primary_key == (column,)
    for strength, parent, key in sorted(candidates, key=lambda each: -each[0]):
        # A table's own key refers to another one only where the name says so: id is in every longer table's id.
        if (strength or (kind == "TEXT" and not own_key)) and not (own_key and strength < 2):
            fewest = 1 if strength else FEWEST_TEXTS
            if _values_fit(source, table, column, parent, key, fewest):
                yield FoundKey(table.name, TableKey((column,), parent.name, (key,), found=True), strength > 0)


def _single_keys(tables: Iterable[SourceTable]) -> Iterator[tuple[SourceTable, str]]:
    for table in tables:
        for columns in dict.fromkeys((table.primary_key, *table.unique)):
            if len(columns) == 1:
                yield table, columns[0]


def _kind_of(table: SourceTable, column: str) -> str:
    return next(each.kind for each in table.columns if each.name == column)


def points_at(column: str, parent: SourceTable, key: str) -> int:
    """How clearly a column's name names a table's key: 3 wholly, 2 by the table, 1 by its last word, 0 not at all."""
    words, table, end = _words(column), _words(parent.name), _words(key)
    one = [*table[:-1], singular(table[-1])] if table else []
    own_name = end[: len(one)] == one or end[: len(table)] == table  # customers.customer_id
    if own_name:
        return 3 if words == end else 2 if words[-len(end) :] == end and end else 0
    for name in (one, table):
        if name and words == [*name, *end]:
            return 3
        if name and words == name and end != words:
            return 2
        if name and words[-len(name) - len(end) :] == [*name, *end]:
            return 1
    return 0


def singular(word: str) -> str:
    """A rough singular, enough to meet ``categories`` with ``category_id``."""
    for ending, replacement in _PLURALS:
        if word.endswith(ending) and len(word) > len(ending) + 1 and not word.endswith("ss"):
            return word[: -len(ending)] + replacement
    return word


def _words(name: str) -> list[str]:
    """``BillingCustomerID`` and ``billing_customer_id`` alike."""
    parted = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name)
    words = [word.lower() for word in re.split(r"[^0-9A-Za-z\u0080-\uffff]+", parted) if word]
    if len(words) == 1 and len(words[0]) > 4 and words[0].endswith("id"):
        return [words[0][:-2], "id"]  # customerid
    return words


def _values_fit(
    source: DatabaseSource, table: SourceTable, column: str, parent: SourceTable, key: str, fewest: int
) -> bool:
    mine, theirs = source.quote(column), source.quote(key)
    different = f"(SELECT DISTINCT {mine} AS v FROM {source.quoted(table)} WHERE {mine} IS NOT NULL) x"
    sql = f"SELECT count(*), count(p.{theirs}) FROM {different} LEFT JOIN {source.quoted(parent)} p ON p.{theirs} = x.v"
    try:
        ((total, matched),) = source.query(sql, 1)
    except QueryFailed:  # types that do not compare
        return False
    return total >= fewest and total == matched
