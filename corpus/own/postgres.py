"""A Postgres database as a source: one read-only snapshot."""

from collections.abc import Iterator, Sequence
from typing import Any

from sqale_grpo.corpus.own.address import Address
from sqale_grpo.corpus.own.drivers import driver
from sqale_grpo.corpus.own.names import new_names
from sqale_grpo.corpus.own.tables import Column, QueryFailed, Row, SourceTable, TableKey, View
from sqale_grpo.corpus.own.values import plain, sqlite_type
from sqale_grpo.corpus.question import CorpusError
from sqale_grpo.env.errors import first_line
from sqale_grpo.env.text import quote_name

CONNECT_SECONDS = 10
FETCHED = 10_000  # rows at a time
_OURS = "n.nspname NOT IN ('pg_catalog', 'information_schema') AND n.nspname !~ '^pg_(toast|temp)'"
# Ordinary, partitioned and foreign tables and materialized views; a partition's rows are its parent's.
_TABLES = (
    "SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
    f"WHERE c.relkind IN ('r', 'p', 'f', 'm') AND NOT c.relispartition AND {_OURS} ORDER BY c.oid"
)
_VIEWS = (
    "SELECT c.relname, pg_get_viewdef(c.oid) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
    f"WHERE c.relkind = 'v' AND {_OURS} ORDER BY c.oid"
)
_COLUMNS = (
    "SELECT a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull FROM pg_attribute a "
    "WHERE a.attrelid = %s::regclass AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum"
)
_KEYS = (
    "SELECT k.contype, "
    "ARRAY(SELECT a.attname::text FROM unnest(k.conkey) WITH ORDINALITY u(n, o) "
    "JOIN pg_attribute a ON a.attrelid = k.conrelid AND a.attnum = u.n ORDER BY o), "
    "f.nspname, p.relname, "
    "ARRAY(SELECT a.attname::text FROM unnest(k.confkey) WITH ORDINALITY u(n, o) "
    "JOIN pg_attribute a ON a.attrelid = k.confrelid AND a.attnum = u.n ORDER BY o) "
    "FROM pg_constraint k LEFT JOIN pg_class p ON p.oid = k.confrelid "
    "LEFT JOIN pg_namespace f ON f.oid = p.relnamespace "
    "WHERE k.conrelid = %s::regclass AND k.contype IN ('p', 'u', 'f') ORDER BY k.oid"
)


class PostgresDatabase:
    """Raises CorpusError where no server answers, or it lets nobody in."""

    dialect = "postgres"

    def __init__(self, address: Address, seconds: float) -> None:
        self._psycopg: Any = driver("psycopg", "a Postgres source")
        self.notes: list[str] = []
        self._cursors = 0
        try:
            self._connection = self._psycopg.connect(
                host=address.socket or address.host,
                port=address.port,
                user=address.user,
                password=address.password,
                dbname=address.database,
                connect_timeout=CONNECT_SECONDS,
                options="-c default_transaction_read_only=on -c TimeZone=UTC",
            )
        except self._psycopg.OperationalError as error:
            raise CorpusError(
                f"{address} cannot be opened ({first_line(error)}): start the server, or mend the address, as in "
                "postgresql://USER@HOST:5432/DATABASE (the password may stand in PGPASSWORD)"
            ) from None
        self._connection.isolation_level = self._psycopg.IsolationLevel.REPEATABLE_READ
        self._milliseconds = round(seconds * 1000)

    def _fetch(self, sql: str, values: Sequence[Any] = ()) -> list[tuple]:
        return self._connection.execute(sql, values or None).fetchall()

    def tables(self) -> list[SourceTable]:
        """All tables and materialized views of all schemas, with the keys that they declare."""
        names = new_names(self._fetch(_TABLES), "public", self.notes)
        return [self._table(place, names) for place in names]

    def _table(self, place: tuple[str, str], names: dict[tuple[str, str], str]) -> SourceTable:
        regclass = ".".join(map(quote_name, place))
        columns = tuple(
            Column(name, sqlite_type(kind), required) for name, kind, required in self._fetch(_COLUMNS, [regclass])
        )
        primary: tuple[str, ...] = ()
        unique: list[tuple[str, ...]] = []
        keys = []
        for kind, mine, schema, other, theirs in self._fetch(_KEYS, [regclass]):
            kind = kind.decode() if isinstance(kind, bytes) else kind
            if kind == "p":
                primary = tuple(mine)
            elif kind == "u":
                unique.append(tuple(mine))
            elif (schema, other) in names:
                keys.append(TableKey(tuple(mine), names[schema, other], tuple(theirs)))
        return SourceTable(names[place], columns, primary, tuple(unique), tuple(keys), place)

    def views(self) -> list[View]:
        """In the order of their making, so that a view comes after those that it reads."""
        return [View(name, sql) for name, sql in self._fetch(_VIEWS)]

    def rows(self, table: SourceTable, limit: int | None) -> Iterator[Row]:
        """In the order of the key, through a cursor of the server."""
        order = f" ORDER BY {', '.join(map(quote_name, table.primary_key))}" if table.primary_key else ""
        cut = "" if limit is None else f" LIMIT {limit}"
        yield from self._stream(f"SELECT * FROM {self.quoted(table)}{order}{cut}")

    def rows_of(self, table: SourceTable, columns: Sequence[str], keys: Sequence[Row]) -> Iterator[Row]:
        """One query a call; the keys travel as text, which the server reads in the columns' types."""
        listed = ", ".join(map(quote_name, columns))
        (types,) = zip(*(self._fetch(_TYPE, [self.quoted(table), column])[0] for column in columns), strict=True)
        mark = f"({', '.join(f'%s::text::{kind}' for kind in types)})"
        condition = f"({listed}) IN ({', '.join([mark] * len(keys))})"
        values = [value if value is None else str(value) for key in keys for value in key]
        yield from self._stream(f"SELECT * FROM {self.quoted(table)} WHERE {condition}", values)

    def _stream(self, sql: str, values: Sequence[Any] = ()) -> Iterator[Row]:
        self._cursors += 1
        with self._connection.cursor(name=f"rows_{self._cursors}") as cursor:
            cursor.itersize = FETCHED
            cursor.execute(sql, values or None)
            for row in cursor:
                yield tuple(map(plain, row))

    def query(self, sql: str, most: int) -> list[Row]:
        """Rows of a query, in a transaction that may not write, within the time limit."""
        self._cursors += 1
        try:
            with self._connection.transaction(), self._connection.cursor(name=f"query_{self._cursors}") as cursor:
                self._connection.execute(f"SET LOCAL statement_timeout = {self._milliseconds}")
                cursor.execute(sql)
                found = [tuple(map(plain, row)) for row in cursor.fetchmany(most + 1)]
                self._connection.execute("SET LOCAL statement_timeout = 0")
                return found
        except self._psycopg.Error as error:
            raise QueryFailed(first_line(error)) from error

    def quoted(self, table: SourceTable) -> str:
        """With its schema."""
        return ".".join(map(quote_name, table.place))

    def quote(self, name: str) -> str:
        """Double quotes."""
        return quote_name(name)

    def close(self) -> None:
        self._connection.close()


_TYPE = (
    "SELECT format_type(a.atttypid, a.atttypmod) FROM pg_attribute a WHERE a.attrelid = %s::regclass AND a.attname = %s"
)
