"""The new SQLite database: tables with their keys, rows as ISO text and plain numbers, at most so many a table.

A limit cuts no key: the rows that a kept row refers to are fetched too, whatever the limit.
"""

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from sqale_grpo.corpus.own.tables import DatabaseSource, Row, SourceTable, TableKey
from sqale_grpo.corpus.question import CorpusError
from sqale_grpo.env.text import quote_name

ASKED = 500  # keys of missing rows in one query


@dataclass(frozen=True)
class Written:
    """Rows of each table, and the tables that the limit has cut."""

    rows: dict[str, int]
    cut: frozenset[str]


def write_database(
    source: DatabaseSource,
    tables: Sequence[SourceTable],
    out: Path,
    limit: int | None,
    told: Callable[[str], None] = lambda _: None,
) -> Written:
    """Copy all tables into the new file ``out``. ``told`` gets the name of each table that is begun.

    Raises CorpusError for a table that SQLite refuses.
    """
    with closing(sqlite3.connect(out, isolation_level=None)) as target:
        target.executescript("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA foreign_keys = OFF;")
        target.execute("BEGIN")
        cut = set()
        for table in tables:
            told(table.name)
            target.execute(create_statement(table, tables))
            rows = source.rows(table, None if limit is None else limit + 1)
            _insert(target, table, rows if limit is None else islice(rows, limit))
            if next(rows, None) is not None:
                cut.add(table.name)
        if cut:
            _fetch_parents(source, tables, target, cut)
        target.execute("COMMIT")
        return Written({table.name: _count(target, table) for table in tables}, frozenset(cut))


def create_statement(table: SourceTable, tables: Iterable[SourceTable]) -> str:
    """CREATE TABLE with the keys; a single INTEGER key is SQLite's rowid.

    A foreign key to columns that are no key of the parent is left out: SQLite would call it a mismatch.
    """
    parents = {each.name: each for each in tables}
    rowid = len(table.primary_key) == 1 and _kind(table, table.primary_key[0]) == "INTEGER"
    lines = []
    for column in table.columns:
        text = f"{quote_name(column.name)} {column.kind}"
        if rowid and column.name == table.primary_key[0]:
            text += " PRIMARY KEY"
        elif column.required and column.kind != "REAL":  # what is not a number becomes NULL
            text += " NOT NULL"
        lines.append(text)
    if table.primary_key and not rowid:
        lines.append(f"PRIMARY KEY ({_listed(table.primary_key)})")
    lines += [f"UNIQUE ({_listed(columns)})" for columns in table.unique if columns != table.primary_key]
    for key in table.foreign_keys:
        if key.parent in parents and _is_key(parents[key.parent], key.parent_columns):
            lines.append(foreign_key_clause(key))
    return f"CREATE TABLE {quote_name(table.name)} (\n  " + ",\n  ".join(lines) + "\n)"


def foreign_key_clause(key: TableKey) -> str:
    """FOREIGN KEY … REFERENCES …"""
    return f"FOREIGN KEY ({_listed(key.columns)}) REFERENCES {quote_name(key.parent)} ({_listed(key.parent_columns)})"


def _listed(columns: Iterable[str]) -> str:
    return ", ".join(map(quote_name, columns))


def _kind(table: SourceTable, column: str) -> str:
    return next(each.kind for each in table.columns if each.name == column)


def _is_key(parent: SourceTable, columns: tuple[str, ...]) -> bool:
    return sorted(columns) in [sorted(each) for each in (parent.primary_key, *parent.unique)]


def _insert(target: sqlite3.Connection, table: SourceTable, rows: Iterator[Row]) -> None:
    marks = ", ".join("?" * len(table.columns))
    try:
        target.executemany(f"INSERT INTO {quote_name(table.name)} VALUES ({marks})", rows)
    except sqlite3.Error as error:
        raise CorpusError(f"the rows of table {table.name!r} cannot be written: {error}") from error


def _count(target: sqlite3.Connection, table: SourceTable) -> int:
    return target.execute(f"SELECT count(*) FROM {quote_name(table.name)}").fetchone()[0]


def _fetch_parents(
    source: DatabaseSource, tables: Sequence[SourceTable], target: sqlite3.Connection, cut: set[str]
) -> None:
    """Rows of cut tables that others refer to, until none is missing that the source has."""
    named = {table.name: table for table in tables}
    asked: set[tuple[str, tuple[str, ...], Row]] = set()
    growing = True
    while growing:
        growing = False
        for child in tables:
            for key in child.foreign_keys:
                if key.parent not in cut:
                    continue
                missing = [
                    values
                    for values in target.execute(_missing(child, key))
                    if (key.parent, key.parent_columns, values) not in asked
                ]
                for start in range(0, len(missing), ASKED):
                    portion = missing[start : start + ASKED]
                    asked.update((key.parent, key.parent_columns, values) for values in portion)
                    _insert(target, named[key.parent], source.rows_of(named[key.parent], key.parent_columns, portion))
                    growing = True


def _missing(child: SourceTable, key: TableKey) -> str:
    """The different values of a key whose row is not there."""
    pairs = " AND ".join(
        f"p.{quote_name(theirs)} = c.{quote_name(mine)}"
        for mine, theirs in zip(key.columns, key.parent_columns, strict=True)
    )
    known = " AND ".join(f"c.{quote_name(mine)} IS NOT NULL" for mine in key.columns)
    listed = ", ".join(f"c.{quote_name(mine)}" for mine in key.columns)
    return (
        f"SELECT DISTINCT {listed} FROM {quote_name(child.name)} c WHERE {known} "
        f"AND NOT EXISTS (SELECT 1 FROM {quote_name(key.parent)} p WHERE {pairs})"
    )
