"""A DuckDB file as a source."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from sqale_grpo.corpus.own.drivers import driver
from sqale_grpo.corpus.own.names import new_names
from sqale_grpo.corpus.own.tables import Column, QueryFailed, Row, SourceTable, TableKey, View
from sqale_grpo.corpus.own.values import plain, sqlite_type
from sqale_grpo.corpus.question import CorpusError
from sqale_grpo.env.errors import first_line
from sqale_grpo.env.text import quote_name

FETCHED = 10_000  # rows at a time
_TABLES = "SELECT schema_name, table_name FROM duckdb_tables() WHERE NOT internal ORDER BY table_oid"
_COLUMNS = (
    "SELECT column_name, data_type, NOT is_nullable FROM duckdb_columns() "
    "WHERE schema_name = ? AND table_name = ? ORDER BY column_index"
)
_CONSTRAINTS = (
    "SELECT constraint_type, constraint_column_names, referenced_table, referenced_column_names "
    "FROM duckdb_constraints() WHERE schema_name = ? AND table_name = ? ORDER BY constraint_index"
)
_VIEWS = "SELECT view_name, sql FROM duckdb_views() WHERE NOT internal ORDER BY view_oid"


class DuckdbFile:
    """Opened read-only. Raises CorpusError where it is no DuckDB file, or another process writes it."""

    dialect = "duckdb"

    def __init__(self, path: Path) -> None:
        self._duckdb = driver("duckdb", f"the DuckDB file {path}")
        self.notes: list[str] = []
        try:
            self._connection = self._duckdb.connect(str(path), read_only=True)
        except self._duckdb.Error as error:
            raise CorpusError(f"{path} cannot be read as DuckDB ({first_line(error)}): close what writes it") from None
        self._connection.execute("SET TimeZone = 'UTC'") if self._has_zones() else None

    def _has_zones(self) -> bool:
        (found,) = self._connection.execute("SELECT count(*) FROM duckdb_settings() WHERE name = 'TimeZone'").fetchone()
        return bool(found)

    def tables(self) -> list[SourceTable]:
        """All tables of all schemas, with the keys that they declare."""
        names = new_names(self._connection.execute(_TABLES).fetchall(), "main", self.notes)
        return [self._table(place, names) for place in names]

    def _table(self, place: tuple[str, str], names: dict[tuple[str, str], str]) -> SourceTable:
        columns = tuple(
            Column(name, sqlite_type(kind), bool(required))
            for name, kind, required in self._connection.execute(_COLUMNS, place).fetchall()
        )
        primary: tuple[str, ...] = ()
        unique: list[tuple[str, ...]] = []
        keys = []
        for kind, mine, other, theirs in self._connection.execute(_CONSTRAINTS, place).fetchall():
            if kind == "PRIMARY KEY":
                primary = tuple(mine)
            elif kind == "UNIQUE":
                unique.append(tuple(mine))
            elif kind == "FOREIGN KEY" and (place[0], other) in names:
                keys.append(TableKey(tuple(mine), names[place[0], other], tuple(theirs)))
        return SourceTable(names[place], columns, primary, tuple(unique), tuple(keys), place)

    def views(self) -> list[View]:
        """Those of the file, in the order of their making."""
        return [View(name, sql) for name, sql in self._connection.execute(_VIEWS).fetchall()]

    def rows(self, table: SourceTable, limit: int | None) -> Iterator[Row]:
        """In the order of the key."""
        order = ", ".join(map(quote_name, table.primary_key)) or "rowid"
        cut = "" if limit is None else f" LIMIT {limit}"
        yield from self._run(f"SELECT * FROM {self.quoted(table)} ORDER BY {order}{cut}")

    def rows_of(self, table: SourceTable, columns: Sequence[str], keys: Sequence[Row]) -> Iterator[Row]:
        """One query a call."""
        listed = ", ".join(map(quote_name, columns))
        mark = f"({', '.join('?' * len(columns))})"
        condition = f"({listed}) IN ({', '.join([mark] * len(keys))})"
        yield from self._run(f"SELECT * FROM {self.quoted(table)} WHERE {condition}", [v for key in keys for v in key])

    def _run(self, sql: str, values: Sequence[Any] = ()) -> Iterator[Row]:
        cursor = self._connection.cursor().execute(sql, values)
        while rows := cursor.fetchmany(FETCHED):
            for row in rows:
                yield tuple(map(plain, row))

    def query(self, sql: str, most: int) -> list[Row]:
        """Rows of any query: the file is opened read-only."""
        try:
            found = self._connection.cursor().execute(sql).fetchmany(most + 1)
        except self._duckdb.Error as error:
            raise QueryFailed(first_line(error)) from error
        return [tuple(map(plain, row)) for row in found]

    def quoted(self, table: SourceTable) -> str:
        """With its schema."""
        return ".".join(map(quote_name, table.place))

    def quote(self, name: str) -> str:
        """Double quotes."""
        return quote_name(name)

    def close(self) -> None:
        self._connection.close()
