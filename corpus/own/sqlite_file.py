"""A SQLite file as a source: its copy gets the keys that were found, and loses the rows over the limit."""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

from sqale_grpo.corpus.files import copy_database
from sqale_grpo.corpus.own.tables import Column, QueryFailed, Row, SourceTable, TableKey, View
from sqale_grpo.corpus.own.values import sqlite_type
from sqale_grpo.corpus.own.write import Written, foreign_key_clause
from sqale_grpo.corpus.question import CorpusError
from sqale_grpo.env.text import fold_name, quote_name

_MASTER = "SELECT name FROM sqlite_master WHERE type = ? AND name NOT LIKE 'sqlite_%' ORDER BY rowid"


class OverSqlite:
    """What all sources that answer from a SQLite file of ours have: its connection is ``_sqlite``."""

    _sqlite: sqlite3.Connection

    def views(self) -> list[View]:
        """None to be made."""
        return []

    def query(self, sql: str, most: int) -> list[Row]:
        """Rows of a query."""
        try:
            return self._sqlite.execute(sql).fetchmany(most + 1)
        except sqlite3.Error as error:
            raise QueryFailed(str(error)) from error

    def quoted(self, table: SourceTable) -> str:
        """Its name, quoted."""
        return quote_name(table.name)

    def quote(self, name: str) -> str:
        """Double quotes."""
        return quote_name(name)

    def close(self) -> None:
        self._sqlite.close()


class SqliteFile(OverSqlite):
    """The copy of a SQLite file. Raises CorpusError where it is none, or has no tables."""

    dialect = "sqlite"

    def __init__(self, source: Path, copy: Path) -> None:
        self.path = copy
        self.notes: list[str] = []
        copy_database(source, copy)
        if copy.is_symlink():
            raise CorpusError(
                f"{source} is too large to be copied here: make the folder on its file system, or keep the file where "
                "it is and write questions.jsonl beside it"
            )
        self._sqlite = sqlite3.connect(copy, isolation_level=None)
        try:
            self._kinds = {row[1]: row[2] for row in self._sqlite.execute("PRAGMA main.table_list") if row[0] == "main"}
            names = [name for (name,) in self._sqlite.execute(_MASTER, ("table",))]
            self._tables = [self._table(name) for name in names if self._kinds.get(name) != "shadow"]
        except sqlite3.Error as error:
            self._sqlite.close()
            raise CorpusError(f"{source} cannot be read as a SQLite database: {error}") from None
        if not self._tables:
            self._sqlite.close()
            raise CorpusError(f"{source} has no tables: name another file")

    def _table(self, name: str) -> SourceTable:
        rows = self._sqlite.execute(
            "SELECT name, type, pk FROM pragma_table_xinfo(?) WHERE hidden != 1", (name,)
        ).fetchall()
        ranked = sorted((rank, column) for column, _, rank in rows if rank)
        unique = [
            tuple(column for (column,) in self._sqlite.execute("SELECT name FROM pragma_index_info(?)", (index,)))
            for _, index, is_unique, _, partial in self._sqlite.execute("SELECT * FROM pragma_index_list(?)", (name,))
            if is_unique and not partial
        ]
        return SourceTable(
            name,
            tuple(Column(column, _kind(declared)) for column, declared, _ in rows),
            tuple(column for _, column in ranked),
            tuple(columns for columns in unique if None not in columns),
            tuple(self._keys(name)),
        )

    def _keys(self, name: str) -> Iterator[TableKey]:
        found: dict[int, list[tuple]] = {}
        for row in self._sqlite.execute("SELECT * FROM pragma_foreign_key_list(?)", (name,)):
            found.setdefault(row[0], []).append(row)
        for rows in found.values():
            rows.sort(key=lambda row: row[1])
            parent = rows[0][2]
            theirs = [row[4] for row in rows]
            if None in theirs:
                ranked = self._sqlite.execute("SELECT name FROM pragma_table_info(?) WHERE pk ORDER BY pk", (parent,))
                theirs = [column for (column,) in ranked]
            if len(theirs) == len(rows):
                yield TableKey(tuple(row[3] for row in rows), parent, tuple(theirs))

    def tables(self) -> list[SourceTable]:
        """Its tables, those that store a virtual one left out."""
        return self._tables

    def rows(self, table: SourceTable, limit: int | None) -> Iterator[Row]:
        """In the order of the file."""
        return self._sqlite.execute(f"SELECT * FROM {quote_name(table.name)} LIMIT {-1 if limit is None else limit}")

    def rows_of(self, table: SourceTable, columns: Sequence[str], keys: Sequence[Row]) -> Iterator[Row]:
        """Rows by key."""
        condition = " AND ".join(f"{quote_name(column)} = ?" for column in columns)
        for key in keys:
            yield from self._sqlite.execute(f"SELECT * FROM {quote_name(table.name)} WHERE {condition}", key)

    def finish(self, tables: Sequence[SourceTable], limit: int | None) -> Written:
        """Declare the keys that were found, and take out the rows over the limit."""
        cut = self._prune(tables, limit) if limit is not None else frozenset()
        for table in tables:
            for key in table.foreign_keys:
                if key.found and not self._declare(table, key):
                    self.notes.append(f"the key {table.name}.{key.columns[0]} cannot be declared in its statement")
        rows = {
            table.name: self._sqlite.execute(f"SELECT count(*) FROM {quote_name(table.name)}").fetchone()[0]
            for table in tables
        }
        return Written(rows, cut)

    def _declare(self, table: SourceTable, key: TableKey) -> bool:
        """Write the key into the stored statement, which SQLite allows for changes that leave the pages as they are."""
        (sql,) = self._sqlite.execute(
            "SELECT sql FROM sqlite_master WHERE type = 'table' AND name = ?", (table.name,)
        ).fetchone()
        end = (sql or "").rfind(")")
        if end < 0 or self._kinds.get(table.name) == "virtual":
            return False
        changed = f"{sql[:end].rstrip()},\n  {foreign_key_clause(key)}\n{sql[end:]}"
        with closing(sqlite3.connect(":memory:")) as trial:
            try:
                trial.execute(changed)
            except sqlite3.Error:
                return False
        (version,) = self._sqlite.execute("PRAGMA schema_version").fetchone()
        self._sqlite.execute("BEGIN")
        self._sqlite.execute("PRAGMA writable_schema = ON")
        self._sqlite.execute(
            "UPDATE sqlite_master SET sql = ? WHERE type = 'table' AND name = ?", (changed, table.name)
        )
        self._sqlite.execute(f"PRAGMA schema_version = {version + 1}")
        self._sqlite.execute("PRAGMA writable_schema = OFF")
        self._sqlite.execute("COMMIT")
        return True

    def _prune(self, tables: Sequence[SourceTable], limit: int) -> frozenset[str]:
        """Keep the first rows of each table and those that kept rows refer to; the triggers go, or they would fire."""
        sizes = {
            table.name: self._sqlite.execute(f"SELECT count(*) FROM {quote_name(table.name)}").fetchone()[0]
            for table in tables
        }
        cut = [table for table in tables if sizes[table.name] > limit and self._has_rowid(table)]
        self._sqlite.executescript("PRAGMA foreign_keys = OFF; PRAGMA journal_mode = OFF;")
        for (trigger,) in self._sqlite.execute(_MASTER, ("trigger",)).fetchall():
            self._sqlite.execute(f"DROP TRIGGER {quote_name(trigger)}")
        numbers = {table.name: f"kept_{number}" for number, table in enumerate(cut)}
        for table in cut:
            self._sqlite.execute(f"CREATE TEMP TABLE {numbers[table.name]} (n INTEGER PRIMARY KEY)")
            first = f"SELECT rowid FROM {quote_name(table.name)} ORDER BY rowid LIMIT {limit}"
            self._sqlite.execute(f"INSERT INTO {numbers[table.name]} {first}")
        while any([self._keep_parents(child, numbers) for child in tables]):
            pass
        for table in cut:
            self._sqlite.execute(
                f"DELETE FROM {quote_name(table.name)} WHERE rowid NOT IN (SELECT n FROM {numbers[table.name]})"
            )
        self._sqlite.execute("VACUUM")
        return frozenset(table.name for table in cut)

    def _keep_parents(self, child: SourceTable, numbers: dict[str, str]) -> int:
        """Keep the rows that kept rows of ``child`` refer to; how many that were."""
        added = 0
        for key in child.foreign_keys:
            parent = next((name for name in numbers if fold_name(name) == fold_name(key.parent)), None)
            if parent is None:
                continue
            kept = f"AND c.rowid IN (SELECT n FROM {numbers[child.name]})" if child.name in numbers else ""
            pairs = " AND ".join(
                f"p.{quote_name(theirs)} = c.{quote_name(mine)}"
                for mine, theirs in zip(key.columns, key.parent_columns, strict=True)
            )
            added += self._sqlite.execute(
                f"INSERT OR IGNORE INTO {numbers[parent]} SELECT p.rowid FROM {quote_name(parent)} p "
                f"JOIN {quote_name(child.name)} c ON {pairs} {kept}"
            ).rowcount
        return added

    def _has_rowid(self, table: SourceTable) -> bool:
        """A virtual table, and one WITHOUT ROWID, stays whole."""
        try:
            self._sqlite.execute(f"SELECT rowid FROM {quote_name(table.name)} LIMIT 1")
        except sqlite3.Error:
            return False
        return self._kinds.get(table.name) == "table"


def _kind(declared: str) -> str:
    return sqlite_type(declared) if declared else "TEXT"
