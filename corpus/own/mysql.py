"""A MySQL or MariaDB database as a source: one read-only snapshot."""

from collections.abc import Iterator, Sequence
from typing import Any

from sqale_grpo.corpus.own.address import Address
from sqale_grpo.corpus.own.drivers import driver
from sqale_grpo.corpus.own.names import new_names
from sqale_grpo.corpus.own.tables import Column, QueryFailed, Row, SourceTable, TableKey, View
from sqale_grpo.corpus.own.values import plain, sqlite_type
from sqale_grpo.corpus.question import CorpusError

CONNECT_SECONDS = 10
_TABLES = (
    "SELECT table_schema, table_name FROM information_schema.tables "
    "WHERE table_schema = DATABASE() AND table_type = 'BASE TABLE' ORDER BY create_time, table_name"
)
_COLUMNS = (
    "SELECT column_name, column_type, is_nullable = 'NO' FROM information_schema.columns "
    "WHERE table_schema = %s AND table_name = %s ORDER BY ordinal_position"
)
_KEYS = (
    "SELECT t.constraint_type, t.constraint_name, k.column_name, k.referenced_table_name, k.referenced_column_name "
    "FROM information_schema.table_constraints t JOIN information_schema.key_column_usage k "
    "ON k.constraint_schema = t.constraint_schema AND k.table_name = t.table_name "
    "AND k.constraint_name = t.constraint_name WHERE t.table_schema = %s AND t.table_name = %s "
    "ORDER BY t.constraint_name, k.ordinal_position"
)
_VIEWS = "SELECT table_name, view_definition FROM information_schema.views WHERE table_schema = DATABASE()"


class MysqlDatabase:
    """Raises CorpusError where no server answers, or it lets nobody in."""

    dialect = "mysql"

    def __init__(self, address: Address, seconds: float) -> None:
        self._pymysql: Any = driver("pymysql", "a MySQL or MariaDB source")
        self.notes: list[str] = []
        where = {"unix_socket": address.socket} if address.socket else {"host": address.host, "port": address.port}
        try:
            self._connection = self._pymysql.connect(
                **where,
                user=address.user,
                password=address.password or "",
                database=address.database,
                charset="utf8mb4",
                connect_timeout=CONNECT_SECONDS,
            )
        except (self._pymysql.Error, OSError) as error:
            told = error.args[-1] if error.args else error
            raise CorpusError(
                f"{address} cannot be opened ({told}): start the server, or mend the address, as in "
                "mysql://USER@HOST:3306/DATABASE (the password may stand in MYSQL_PWD)"
            ) from None
        maria = "MariaDB" in self._connection.get_server_info()
        self._limit = f"max_statement_time = {seconds}" if maria else f"max_execution_time = {seconds * 1000:.0f}"
        with self._connection.cursor() as cursor:
            cursor.execute("SET SESSION time_zone = '+00:00'")
            cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            cursor.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")

    def _fetch(self, sql: str, values: Sequence[Any] = ()) -> list[tuple]:
        with self._connection.cursor() as cursor:
            cursor.execute(sql, values or None)
            return list(cursor.fetchall())

    def tables(self) -> list[SourceTable]:
        """All tables of the database, with the keys that they declare."""
        names = new_names(self._fetch(_TABLES), "", self.notes)
        return [self._table(place, names) for place in names]

    def _table(self, place: tuple[str, str], names: dict[tuple[str, str], str]) -> SourceTable:
        columns = tuple(
            Column(name, sqlite_type(_word(kind)), bool(required))
            for name, kind, required in self._fetch(_COLUMNS, place)
        )
        found: dict[tuple[str, str], list[tuple[str, str, str]]] = {}
        for kind, name, column, other, theirs in self._fetch(_KEYS, place):
            found.setdefault((kind, name), []).append((column, other, theirs))
        primary: tuple[str, ...] = ()
        unique: list[tuple[str, ...]] = []
        keys = []
        for (kind, _), rows in found.items():
            mine, others, theirs = zip(*rows, strict=True)
            if kind == "PRIMARY KEY":
                primary = mine
            elif kind == "UNIQUE":
                unique.append(mine)
            elif kind == "FOREIGN KEY" and (place[0], others[0]) in names:
                keys.append(TableKey(mine, names[place[0], others[0]], theirs))
        return SourceTable(names[place], columns, primary, tuple(unique), tuple(keys), place)

    def views(self) -> list[View]:
        """By name; whoever makes them tries those that read others again."""
        return [View(name, _word(sql)) for name, sql in self._fetch(_VIEWS)]

    def rows(self, table: SourceTable, limit: int | None) -> Iterator[Row]:
        """In the order of the key, as the server sends them."""
        order = f" ORDER BY {', '.join(map(self.quote, table.primary_key))}" if table.primary_key else ""
        cut = "" if limit is None else f" LIMIT {limit}"
        yield from self._stream(f"SELECT * FROM {self.quoted(table)}{order}{cut}")

    def rows_of(self, table: SourceTable, columns: Sequence[str], keys: Sequence[Row]) -> Iterator[Row]:
        """One query a call."""
        listed = ", ".join(map(self.quote, columns))
        mark = f"({', '.join(['%s'] * len(columns))})"
        condition = f"({listed}) IN ({', '.join([mark] * len(keys))})"
        yield from self._stream(
            f"SELECT * FROM {self.quoted(table)} WHERE {condition}", [value for key in keys for value in key]
        )

    def _stream(self, sql: str, values: Sequence[Any] = ()) -> Iterator[Row]:
        with self._connection.cursor(self._pymysql.cursors.SSCursor) as cursor:
            cursor.execute(sql, values or None)
            for row in cursor:
                yield tuple(map(plain, row))

    def query(self, sql: str, most: int) -> list[Row]:
        """Rows of a query, in a transaction that may not write, within the time limit."""
        with self._connection.cursor() as cursor:
            cursor.execute(f"SET SESSION {self._limit}")
            try:
                cursor.execute(sql)
                if cursor.description is None:
                    raise QueryFailed("it returns no rows")
                return [tuple(map(plain, row)) for row in cursor.fetchmany(most + 1)]
            except self._pymysql.Error as error:
                raise QueryFailed(str(error.args[-1] if error.args else error).split("\n")[0]) from error
            finally:
                cursor.execute(f"SET SESSION {self._limit.partition(' = ')[0]} = 0")

    def quoted(self, table: SourceTable) -> str:
        """With its database."""
        return ".".join(map(self.quote, table.place))

    def quote(self, name: str) -> str:
        """Backquotes."""
        return "`" + name.replace("`", "``") + "`"

    def close(self) -> None:
        self._connection.close()


def _word(value: str | bytes) -> str:
    return value.decode("utf-8") if isinstance(value, bytes) else value
