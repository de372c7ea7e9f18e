"""Build a counter-database: a new database with the same schema, its gold tables changed by a seed.

The tables are made by the source's own CREATE statements, so that types, NOT NULL, UNIQUE and CHECK hold in the copy;
rows that they refuse are left as they were. The gold tables' rows depend on the gold tables alone: the copy of an
episode's sampled schema and the one that ``prepare`` looked at, which has no other table, agree in them.
"""

import itertools
import sqlite3
from collections.abc import Iterable, Sequence

from sqale_grpo.env.authorizer import FUNCTIONS
from sqale_grpo.env.query import decode
from sqale_grpo.env.text import fold_name, quote_name
from sqale_grpo.env.verdict import BY_CODE
from sqale_grpo.reward.counter import Changed, CopyPlan, Foreign, TableFacts, change_tables

ROWS = 2_000  # of a table: of a larger gold table the first so many, other larger tables are left out
SETTINGS = (
    "foreign_keys = OFF",
    "synchronous = OFF",
    "journal_mode = MEMORY",
    "temp_store = MEMORY",
    "trusted_schema = OFF",
)
TICK, TICKS = 100_000, 1_000  # a build may take so many times so many steps of SQLite: some seconds
REFUSED = (sqlite3.SQLITE_ATTACH, sqlite3.SQLITE_CREATE_VTABLE, sqlite3.SQLITE_CREATE_TRIGGER)


class NoCopy(Exception):
    """A copy of these tables cannot be made; the text says why."""


def kind_of(error: Exception) -> str:
    """By SQLite's code; machine and timeout say nothing about the rows."""
    return BY_CODE.get(getattr(error, "sqlite_errorcode", 0) & 0xFF, "")


def no_copy(error: Exception) -> Exception:
    """What an error means: NoCopy, or the error itself where the machine failed."""
    return error if kind_of(error) == "machine" else NoCopy(str(error))


def refused(error: Exception) -> None:
    """An error that is the database's answer to a row or a table is none; any other one is raised again."""
    if kind_of(error) in ("machine", "timeout"):
        raise error


class CopyBuilder:
    """The gold tables of one database and question: read once, then built with any seed."""

    def __init__(self, source: str, plan: CopyPlan) -> None:
        """``source``: URI of a file that nobody writes. Raises NoCopy; sqlite3.Error where the machine failed."""
        self.source, self.plan = source, plan
        self._catalog: list[tuple[str, str, str]] = []
        with_source = self._open(":memory:")
        try:
            self._catalog = catalog(with_source)
            self._tables = in_order([self._read(with_source, table) for table in plan.tables])
        except (sqlite3.Error, UnicodeError) as error:
            raise no_copy(error) from error
        finally:
            with_source.close()

    def _open(self, target: str) -> sqlite3.Connection:
        connection = sqlite3.connect(target, uri=True, isolation_level=None)
        connection.text_factory = decode
        for setting in SETTINGS:
            connection.execute(f"PRAGMA {setting}")
        try:
            connection.execute("ATTACH ? AS source", (self.source,))
        except sqlite3.Error as error:  # a database in UTF-16, or one that was damaged since
            connection.close()
            raise no_copy(error) from error
        connection.set_authorizer(harmless)
        ticks = itertools.count(1)
        connection.set_progress_handler(lambda: next(ticks) > TICKS, TICK)
        return connection

    def _read(self, connection: sqlite3.Connection, table: str) -> tuple[TableFacts, list[tuple]]:
        """Facts and the first rows of a gold table, in the order in which they are stored."""
        kind = next((kind for kind, name, _ in self._catalog if fold_name(name) == fold_name(table)), "")
        if kind != "table":
            raise NoCopy(f"{table} is no base table")
        facts = table_facts(connection, table)
        listed = ", ".join(map(quote_name, facts.columns))
        connection.text_factory = str  # text that is not UTF-8 is an error here, and there is no copy
        found = connection.execute(f"SELECT {listed} FROM source.{quote_name(table)} NOT INDEXED LIMIT {ROWS}")
        rows = found.fetchall()
        connection.text_factory = decode
        return facts, rows

    def build(self, target: str, seed: int, others: Iterable[str] = (), backwards: bool = False) -> "Copy":
        """Write the copy to ``target``, a new file or ``:memory:``, and leave its connection open.

        ``others``: further tables to take over as they are. ``backwards``: the rows of gold tables are stored last to
        first, for whoever looks whether a query depends on that. Raises NoCopy; sqlite3.Error as above.
        """
        connection = self._open(target)
        try:
            connection.execute("BEGIN")
            changed = change_tables(self._tables, self.plan, seed)
            for facts, rows in self._tables:
                self._create(connection, facts.name)
                fill(connection, facts, changed[fold_name(facts.name)], rows, backwards)
            left_out = frozenset(other for other in others if not self._take_over(connection, other))
            self._create_views(connection)
            connection.execute("COMMIT")
            connection.execute("DETACH source")
            connection.set_authorizer(None)
            connection.set_progress_handler(None, 0)
        except (sqlite3.Error, UnicodeError, OverflowError) as error:
            connection.close()
            raise no_copy(error) from error
        return Copy(connection, left_out)

    def _create(self, connection: sqlite3.Connection, table: str) -> None:
        """Make an empty table with its indexes; those that no statement made come with the table."""
        for kind, name, sql in self._catalog:
            if fold_name(name) == fold_name(table) and sql and kind != "virtual":
                connection.execute(sql)

    def _create_views(self, connection: sqlite3.Connection) -> None:
        """Make the source's views: an answer may read one. A view over a table that is not here fails when it is read.

        SQLite compiles none of them now, so that views which double each other cost nothing.
        """
        stored = "SELECT sql FROM source.sqlite_master WHERE type = 'view' AND sql IS NOT NULL ORDER BY rowid"
        for (sql,) in connection.execute(stored).fetchall():
            try:
                connection.execute(sql)
            except sqlite3.Error as error:
                refused(error)

    def _take_over(self, connection: sqlite3.Connection, table: str) -> bool:
        """Copy a table that the gold query does not read; False where it is too large, or of a kind that cannot be."""
        name = quote_name(table)
        kind = next((kind for kind, name, _ in self._catalog if fold_name(name) == fold_name(table)), "")
        try:
            size = f"SELECT count(*) FROM (SELECT 1 FROM source.{name} LIMIT {ROWS + 1})"
            if kind != "table" or connection.execute(size).fetchone()[0] > ROWS:
                return False
        except sqlite3.Error as error:
            refused(error)
            return False
        connection.execute("SAVEPOINT other")
        connection.execute("PRAGMA ignore_check_constraints = ON")
        try:
            self._create(connection, table)
            listed = ", ".join(map(quote_name, stored_columns(connection, table)))
            values = f"SELECT {listed} FROM source.{name} NOT INDEXED"
            connection.execute(f"INSERT INTO main.{name} ({listed}) {values}")
            taken = True
        except sqlite3.Error as error:
            refused(error)
            connection.execute("ROLLBACK TO other")
            taken = False
        connection.execute("PRAGMA ignore_check_constraints = OFF")
        connection.execute("RELEASE other")
        return taken


def harmless(action: int, _: str | None, function: str | None, *__: str | None) -> int:
    """SQLite's authorizer while a copy is built: a file brings statements and expressions along."""
    no = action in REFUSED or (action == sqlite3.SQLITE_FUNCTION and (function or "").lower() in FUNCTIONS)
    return sqlite3.SQLITE_DENY if no else sqlite3.SQLITE_OK


class Copy:
    """A counter-database that was built; ``left_out``: tables asked for that it does not hold."""

    def __init__(self, connection: sqlite3.Connection, left_out: frozenset[str]) -> None:
        self.connection, self.left_out = connection, left_out

    def close(self) -> None:
        """Close the connection; a copy in memory is gone."""
        self.connection.close()


def catalog(connection: sqlite3.Connection) -> list[tuple[str, str, str]]:
    """(kind, table, CREATE statement) of the source's tables and indexes, tables before their indexes."""
    stored = connection.execute(
        "SELECT CASE WHEN sql LIKE 'create virtual %' THEN 'virtual' ELSE type END, tbl_name, sql "
        "FROM source.sqlite_master WHERE type IN ('table', 'index') ORDER BY type DESC, rowid"
    )
    return [(kind, name, sql or "") for kind, name, sql in stored]


def table_facts(connection: sqlite3.Connection, table: str) -> TableFacts:
    """Columns, keys and unique columns of a table of the source. Generated columns are none that a row stores."""
    name = quote_name(table)
    info = [row for row in connection.execute(f"PRAGMA source.table_xinfo({name})") if row[6] == 0]
    columns = tuple(row[1] for row in info)
    place = {fold_name(column): index for index, column in enumerate(columns)}
    primary = tuple(index for index, row in enumerate(info) if row[5])
    unique: set[int] = set()
    for row in connection.execute(f"PRAGMA source.index_list({name})").fetchall():
        if row[2] and row[3] != "pk":
            named = connection.execute(f"PRAGMA source.index_info({quote_name(row[1])})")
            unique |= {place[fold_name(each)] for _, _, each in named if each and fold_name(each) in place}
    return TableFacts(table, columns, primary, frozenset(unique), tuple(foreign(connection, table, place)), frozenset())


def foreign(connection: sqlite3.Connection, table: str, place: dict[str, int]) -> Iterable[Foreign]:
    """The declared foreign keys of a table; one to a primary key that is not named has no columns yet."""
    keys: dict[int, list[tuple]] = {}
    for row in connection.execute(f"PRAGMA source.foreign_key_list({quote_name(table)})"):
        keys.setdefault(row[0], []).append(row)
    for rows in keys.values():
        if all(fold_name(row[3]) in place for row in rows):
            places = tuple(place[fold_name(row[3])] for row in rows)
            columns = tuple(fold_name(row[4]) for row in rows if row[4])
            yield Foreign(places, fold_name(rows[0][2] or ""), columns if len(columns) == len(places) else ())


def in_order(tables: Sequence[tuple[TableFacts, list[tuple]]]) -> list[tuple[TableFacts, list[tuple]]]:
    """Parents before their children where the keys allow it; each key names its parent's columns, and each knows."""
    facts = {fold_name(each.name): each for each, _ in tables}
    rows = {fold_name(each.name): found for each, found in tables}
    for name, each in facts.items():
        keys = tuple(named(key, facts.get(key.parent)) for key in each.foreign)
        facts[name] = TableFacts(each.name, each.columns, each.primary, each.unique, keys, each.referenced)
    for each in list(facts.values()):
        for key in each.foreign:
            parent = facts.get(key.parent)
            if parent is not None:
                folded = [fold_name(column) for column in parent.columns]
                places = parent.referenced | {folded.index(column) for column in key.columns if column in folded}
                facts[key.parent] = TableFacts(
                    parent.name, parent.columns, parent.primary, parent.unique, parent.foreign, places
                )
    ordered: list[str] = []
    waiting = list(facts)
    while waiting:
        ready = [n for n in waiting if not any(k.parent in waiting and k.parent != n for k in facts[n].foreign)]
        ordered.append((ready or waiting)[0])  # of tables that refer to each other the first one goes first
        waiting.remove(ordered[-1])
    return [(facts[name], rows[name]) for name in ordered]


def named(key: Foreign, parent: TableFacts | None) -> Foreign:
    """The key with its parent's primary key as its columns, where the declaration names none."""
    if key.columns or parent is None or len(parent.primary) != len(key.places):
        return key
    return Foreign(key.places, key.parent, tuple(fold_name(parent.columns[place]) for place in parent.primary))


def fill(
    connection: sqlite3.Connection, facts: TableFacts, new: Changed, old: Sequence[tuple], backwards: bool
) -> None:
    """Store the new rows; a changed one that the table refuses as it was, a new one that it refuses not at all."""
    marks = ", ".join("?" * len(facts.columns))
    listed = ", ".join(map(quote_name, facts.columns))
    insert = f"INSERT OR IGNORE INTO main.{quote_name(facts.name)} ({listed}) VALUES ({marks})"
    order = range(len(new.rows) - 1, -1, -1) if backwards else range(len(new.rows))
    accepted = new.rows
    try:
        whole = connection.executemany(insert, [new.rows[index] for index in order]).rowcount == len(new.rows)
    except (sqlite3.Error, OverflowError) as error:
        refused(error)
        whole = False
    if not whole:
        connection.execute(f"DELETE FROM main.{quote_name(facts.name)}")
        accepted = []
        for index, row in enumerate(new.rows):
            for each in [row, old[index]] if index < new.old else [row]:
                if stored(connection, insert, each):
                    accepted.append(list(each))
                    break
        if backwards:  # which rows a table accepts must not depend on their order
            connection.execute(f"DELETE FROM main.{quote_name(facts.name)}")
            connection.executemany(insert, accepted[::-1])


def stored(connection: sqlite3.Connection, insert: str, row: Sequence) -> bool:
    """Whether the table took the row."""
    try:
        return connection.execute(insert, row).rowcount == 1
    except (sqlite3.Error, OverflowError) as error:
        refused(error)
        return False


def stored_columns(connection: sqlite3.Connection, table: str) -> list[str]:
    """The columns of a table of the source that rows store."""
    return [row[1] for row in connection.execute(f"PRAGMA source.table_xinfo({quote_name(table)})") if row[6] == 0]
