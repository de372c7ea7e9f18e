"""The verdict on one gold query: does it run, what does it read, how many rows has it."""

import time
from dataclasses import dataclass, replace
from pathlib import Path

from sqale_grpo.corpus import reasons
from sqale_grpo.corpus.execution import ROWS, QueryError, QueryTimeout, TooManyRows, Touched, connect, quote_name, run
from sqale_grpo.corpus.gold_tables import UnparsedSql, fold, gold_tables


@dataclass(frozen=True)
class Verdict:
    """``dropped`` is a reason of ``corpus.reasons`` or empty; ``unparsed`` says that only SQLite knew the tables."""

    dropped: str = ""
    detail: str = ""
    tables: tuple[str, ...] = ()
    n_rows: int = 0
    unparsed: bool = False
    unstable: str = ""


@dataclass(frozen=True)
class DatabaseFacts:
    """Figures of one database; ``rows`` is -1 where counting took too long."""

    tables: int
    foreign_keys: int
    rows: int
    bytes: int


class GoldDatabase:
    """One prepared database and the names of its tables and views.

    ``tables`` are those that an episode can hold, as declared, in creation order: base tables and virtual ones. The
    shadow tables that store a virtual one stand for it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.connection = connect(path)
        stored = self._names("table")
        self._owners = self._shadow_owners()
        self.tables = tuple(name for name in stored if fold(name) not in self._owners)
        self.views = frozenset(map(fold, self._names("view")))

    def close(self) -> None:
        self.connection.close()

    def _names(self, kind: str) -> tuple[str, ...]:
        query = (
            "SELECT name FROM sqlite_master WHERE type = ? AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY rowid"
        )
        return tuple(name for (name,) in self.connection.execute(query, (kind,)))

    def _shadow_owners(self) -> dict[str, str]:
        """Shadow tables and the virtual table of each, the longest that its name begins with; names folded."""
        kinds = {fold(row[1]): row[2] for row in self.connection.execute("PRAGMA main.table_list")}
        virtual = [name for name, kind in kinds.items() if kind == "virtual"]
        shadows = [name for name, kind in kinds.items() if kind == "shadow"]
        return {name: max((v for v in virtual if name.startswith(f"{v}_")), key=len) for name in shadows}

    def facts(self) -> DatabaseFacts:
        """Counts of tables, declared foreign keys and rows (the rows within ten seconds)."""
        keys = sum(map(self._count_keys, self.tables))
        return DatabaseFacts(len(self.tables), keys, self._count_rows(time.monotonic() + 10), self.path.stat().st_size)

    def _count_keys(self, table: str) -> int:
        """By value: a statement cannot hold a name that is not UTF-8."""
        query = "SELECT count(DISTINCT id) FROM pragma_foreign_key_list(CAST(? AS TEXT))"
        return self.connection.execute(query, (table.encode("utf-8", "surrogateescape"),)).fetchone()[0]

    def _count_rows(self, deadline: float) -> int:
        try:
            counts = (run(self.connection, f"SELECT count(*) FROM {quote_name(t)}", deadline)[0] for t in self.tables)
            return sum(rows[0][0] for rows in counts)
        except QueryError:
            return -1

    def judge(self, sql: str, seconds: float, most: int = ROWS) -> tuple[Verdict, list[tuple], Touched]:
        """Run a gold query for at most ``seconds`` and rows; the rows and what it touched serve further probes."""
        try:
            rows, touched = run(self.connection, sql, time.monotonic() + seconds, most)
        except QueryTimeout:
            return Verdict(reasons.TIMES_OUT, f"over {seconds:g} s"), [], Touched()
        except TooManyRows as error:
            return Verdict(reasons.TOO_MANY_ROWS, str(error)), [], Touched()
        except QueryError as error:
            reason = reasons.UNKNOWN_TABLE if str(error).startswith("no such table") else reasons.FAILS
            return Verdict(reason, str(error)), [], Touched()
        verdict = replace(self._tables(sql, touched.tables), n_rows=len(rows))
        return verdict, rows, touched

    def _tables(self, sql: str, read: set[str]) -> Verdict:
        """The gold tables: sqlglot's, and any other that SQLite's authorizer saw (all, where sqlglot fails)."""
        known = {*map(fold, self.tables), *self._owners}
        if any(name.startswith(("sqlite_", "pragma_")) for name in read - known):
            return Verdict(reasons.READS_SCHEMA)
        if read & self.views:
            return Verdict(reasons.READS_VIEW, ", ".join(sorted(read & self.views)))
        unparsed, detail = False, ""
        try:
            named = set(gold_tables(sql, self.tables))
        except UnparsedSql as error:
            named, unparsed, detail = set(), True, str(error)
        stored = read | {self._owners[name] for name in read & self._owners.keys()}
        tables = tuple(table for table in self.tables if table in named or fold(table) in stored)
        return Verdict("" if tables else reasons.NO_TABLE, detail, tables, unparsed=unparsed)
