"""The verdict on one gold query: does it run as an episode would run it, what does it read, how many rows has it.

A gold runs on the environment's own connection, under its authorizer and its limits: one that ran here and not there
would end a training run.
"""

import marshal
import resource
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from sqale_grpo.corpus import reasons
from sqale_grpo.corpus.gold_tables import UnparsedSql, gold_tables
from sqale_grpo.env.catalog import bound_name
from sqale_grpo.env.connect import read_only_uri
from sqale_grpo.env.limits import Limits, SqlError
from sqale_grpo.env.query import Connection, decode, skip_blank
from sqale_grpo.env.text import fold_name, quote_name
from sqale_grpo.env.worker import MB, limit_data
from sqale_grpo.sampler.source import read_source
from sqale_grpo.sampler.views import view_entries

COUNT_SECONDS = 10.0


class GoldConnection(Connection):
    """The environment's connection to a prepared file that nobody writes, in the process that judges golds."""

    def __init__(self, path: Path, steps: int = Limits.steps) -> None:
        super().__init__(read_only_uri(path), asdict(Limits(steps=steps)))

    def rows(self, sql: str, seconds: float, most: int) -> list[tuple]:
        """All rows of ``sql``, at most ``most``. Raises SqlError, or MemoryError: this process must be replaced then.

        The connection's ``reads`` and ``functions`` say what the statement touched, until the next one runs.
        """
        self.limits["seconds"] = seconds
        limit_data(self.limits["memory_mb"] * MB)
        try:
            kind, message, _, found = self.run(sql, most, partial=False)
        finally:
            resource.setrlimit(resource.RLIMIT_DATA, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        if (kind, message) == ("memory", "out of memory"):
            raise MemoryError
        if kind:
            raise SqlError(kind, message)
        return [row for chunk in found[1] for row in marshal.loads(chunk)]

    @contextmanager
    def unguarded(self) -> Iterator[sqlite3.Connection]:
        """The bare connection without authorizer and time limit: for our own statements, never for a corpus'."""
        bare, factory, self.deadline = self.sqlite, self.sqlite.text_factory, float("inf")
        bare.set_authorizer(None)
        bare.text_factory = decode
        try:
            yield bare
        finally:
            bare.text_factory = factory
            bare.set_authorizer(self.authorizer)


@dataclass(frozen=True)
class Touched:
    """What SQLite's authorizer saw while it compiled a query; names folded to lower case."""

    tables: frozenset[str] = frozenset()  # base tables, views, common tables and table-valued functions
    functions: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Choice:
    """``seeds`` of a question's counter-databases, the best first; ``missing``: why there are fewer than asked for.

    ``wrong``: mutants of the gold query that are wrong, on its database or some copy; ``paid[k]``: those of them that
    are taken for right with the first k copies; () where no copy could tell. Mistakes that may be none (``SLIGHT``)
    and constants are not counted.
    """

    seeds: tuple[int, ...] = ()
    missing: str = ""
    wrong: int = 0
    paid: tuple[int, ...] = ()

    @property
    def luck(self) -> tuple[float, ...]:
        """The share of wrong mutants that are taken for right, with no copy, with one ...; 0 where none is wrong."""
        return tuple(each / self.wrong if self.wrong else 0.0 for each in self.paid)


@dataclass(frozen=True)
class Verdict:
    """``dropped`` is a reason of ``corpus.reasons`` or empty; ``unparsed`` says that only SQLite knew the tables."""

    dropped: str = ""
    detail: str = ""
    tables: tuple[str, ...] = ()
    n_rows: int = 0
    unparsed: bool = False
    unstable: str = ""
    choice: Choice = Choice()


@dataclass(frozen=True)
class Judgement:
    """The verdict on one gold query; its rows and what it touched serve further probes, if it is kept."""

    verdict: Verdict
    rows: list[tuple] = field(default_factory=list)
    touched: Touched = Touched()


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

    def __init__(self, path: Path, steps: int = Limits.steps) -> None:
        """``steps``: what a gold may take."""
        self.path = path
        self.connection = GoldConnection(path, steps)
        self.tables = tuple(self.connection.tables.values())
        with self.connection.unguarded() as bare:
            self.views = frozenset(fold_name(name) for (name,) in bare.execute(VIEWS))
            self._shown = frozenset(fold_name(view.name) for view in view_entries(read_source(path)))
            self._owners = shadow_owners(bare)

    def close(self) -> None:
        self.connection.close()

    def facts(self) -> DatabaseFacts:
        """Counts of tables, declared foreign keys and rows (the rows within ten seconds)."""
        with self.connection.unguarded() as bare:
            keys = sum(count_keys(bare, table) for table in self.tables)
        return DatabaseFacts(len(self.tables), keys, self._count_rows(), self.path.stat().st_size)

    def _count_rows(self) -> int:
        deadline, total = time.monotonic() + COUNT_SECONDS, 0
        try:
            for table in self.tables:
                query = f"SELECT count(*) FROM {quote_name(table)}"
                total += self.connection.rows(query, deadline - time.monotonic(), most=1)[0][0]
        except SqlError:
            return -1
        return total

    def judge(self, sql: str, seconds: float, most: int = Limits.rows) -> Judgement:
        """Run a gold query for at most ``seconds`` and ``most`` rows. Raises MemoryError as the connection does."""
        if describes(sql):
            return Judgement(Verdict(reasons.READS_SCHEMA))
        try:
            rows = self.connection.rows(sql, seconds, most)
        except SqlError as error:
            return Judgement(Verdict(reason(error), error.message))
        tables = frozenset(map(fold_name, self.connection.reads))
        touched = Touched(tables, frozenset(self.connection.functions))
        return Judgement(replace(self._tables(sql, tables), n_rows=len(rows)), rows, touched)

    def _tables(self, sql: str, read: frozenset[str]) -> Verdict:
        """The gold tables: sqlglot's, and any other that SQLite's authorizer saw (all, where sqlglot fails)."""
        known = {*map(fold_name, self.tables), *self._owners}
        if any(name.startswith(("sqlite_", "pragma_")) for name in read - known):
            return Verdict(reasons.READS_SCHEMA)
        hidden = (read & self.views) - self._shown
        if hidden:
            return Verdict(reasons.READS_VIEW, ", ".join(sorted(hidden)))
        unparsed, detail = False, ""
        try:
            named = set(gold_tables(sql, self.tables))
        except UnparsedSql as error:
            named, unparsed, detail = set(), True, str(error)
        stored = read | {self._owners[name] for name in read & self._owners.keys()}
        tables = tuple(table for table in self.tables if table in named or fold_name(table) in stored)
        return Verdict("" if tables else reasons.NO_TABLE, detail, tables, unparsed=unparsed)


VIEWS = "SELECT name FROM main.sqlite_master WHERE type = 'view'"


def shadow_owners(bare: sqlite3.Connection) -> dict[str, str]:
    """Shadow tables and the virtual table of each, the longest that its name begins with; names folded."""
    kinds = {fold_name(row[1]): row[2] for row in bare.execute("PRAGMA main.table_list")}
    virtual = [name for name, kind in kinds.items() if kind == "virtual"]
    shadows = [name for name, kind in kinds.items() if kind == "shadow"]
    return {name: max((v for v in virtual if name.startswith(f"{v}_")), key=len) for name in shadows}


def count_keys(bare: sqlite3.Connection, table: str) -> int:
    """Foreign keys that a table declares. By value: a statement cannot hold a name that is not UTF-8."""
    (encoding,) = bare.execute("PRAGMA main.encoding").fetchone()
    query = "SELECT count(DISTINCT id) FROM pragma_foreign_key_list(CAST(? AS TEXT), 'main')"
    return bare.execute(query, (bound_name(table, encoding),)).fetchone()[0]


def describes(sql: str) -> bool:
    """Is it an EXPLAIN or a PRAGMA? The environment runs them, but what they show is the file, not its content."""
    start = skip_blank(sql, 0)
    return sql[start : start + 7].lower().startswith(("explain", "pragma"))


def reason(error: SqlError) -> str:
    """Why a gold that fails is dropped."""
    if error.message.startswith("no such table"):
        return reasons.UNKNOWN_TABLE
    return {"timeout": reasons.TIMES_OUT, "rows": reasons.TOO_MANY_ROWS}.get(error.kind, reasons.FAILS)
