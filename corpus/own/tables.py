"""What a database of any kind says of itself: tables, columns, keys, views; and how it is asked.

``DatabaseSource`` is the one form in which a CSV folder, a DuckDB file or a server is read. Values come as SQLite
stores them (``values.plain``).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

Row = tuple


@dataclass(frozen=True)
class TableKey:
    """``columns`` of a table refer to ``parent_columns`` of ``parent``. ``found``: by its values, not declared."""

    columns: tuple[str, ...]
    parent: str
    parent_columns: tuple[str, ...]
    found: bool = False


@dataclass(frozen=True)
class Column:
    """A column with the type that SQLite is told: INTEGER, REAL, TEXT, BLOB, BOOLEAN, DATE, DATETIME or TIME."""

    name: str
    kind: str
    required: bool = False


@dataclass(frozen=True)
class SourceTable:
    """A table, with its name in the new database. ``place``: what the source calls it, where that is another name."""

    name: str
    columns: tuple[Column, ...]
    primary_key: tuple[str, ...] = ()
    unique: tuple[tuple[str, ...], ...] = ()
    foreign_keys: tuple[TableKey, ...] = ()
    place: tuple[str, ...] = ()

    def with_keys(self, *keys: TableKey) -> "SourceTable":
        """The same with further foreign keys."""
        return replace(self, foreign_keys=(*self.foreign_keys, *keys))


@dataclass(frozen=True)
class View:
    """A view and the query behind it, in the source's dialect."""

    name: str
    sql: str


class DatabaseSource(Protocol):
    """A database that is read once, and never written.

    ``dialect``: sqlglot's name of its SQL; "" where it has none. ``notes``: what a person should know of the reading.
    """

    dialect: str
    notes: list[str]

    def tables(self) -> list[SourceTable]:
        """All tables, in an order of the source's own."""

    def views(self) -> list[View]:
        """All views, those that others read first."""

    def rows(self, table: SourceTable, limit: int | None) -> Iterator[Row]:
        """Its rows in the order of its key, at most ``limit``."""

    def rows_of(self, table: SourceTable, columns: Sequence[str], keys: Sequence[Row]) -> Iterator[Row]:
        """The rows whose ``columns`` have the values of one of ``keys``."""

    def query(self, sql: str, most: int) -> list[Row]:
        """The rows of a query in the source's dialect, at most ``most`` + 1. Raises QueryFailed."""

    def quoted(self, table: SourceTable) -> str:
        """The table as a query of the source names it."""

    def quote(self, name: str) -> str:
        """A column as a query of the source names it."""

    def close(self) -> None: ...


class QueryFailed(Exception):
    """The source refused a query; the message is its first line."""
