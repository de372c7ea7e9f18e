"""Does the gold result depend on chance, on the clock, or on the order in which SQLite happens to scan?

Such a gold cannot be matched reliably by a right answer. A query is run again under circumstances that a
correct one does not notice: ``PRAGMA reverse_unordered_selects``; the same rows stored in reverse order (which
also turns window functions, group_concat and bare columns of a group); ties of ORDER BY broken one way and the
other; two other clocks; several runs, where it calls RANDOM(). The first difference names the cause.

A SQLite connection whose clock stands at another time, to see whether a query looks at it.

Ties that ORDER BY leaves open: the same query with its ties broken one way and the other.

Every top-level ORDER BY, and every inner one with a LIMIT, gets the columns of its own result as further terms,
rising in one variant and falling in the other. Rows that tie in all columns are the same row, so the variants
agree exactly where ties do not matter. (Storing the rows in another order shows only some of these: after a
GROUP BY, ties come in the order of the groups, however the rows are stored.)
"""

import re
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from sqlglot import exp

from sqale_grpo.corpus import reasons
from sqale_grpo.corpus.gold import GoldConnection, GoldDatabase, Judgement, Touched
from sqale_grpo.corpus.gold_tables import UnparsedSql, parse
from sqale_grpo.env.limits import Limits, SqlError
from sqale_grpo.env.syntax import is_ordered
from sqale_grpo.env.text import fold_name, quote_name
from sqale_grpo.reward.compare import same_results
from sqale_grpo.reward.ties import tie_sizes


def tie_variants(sql: str, width: int) -> tuple[str, str] | None:
    """The query with ties broken by rising and by falling columns; ``width``: how many columns its result has.

    None where no ORDER BY can have ties that matter, or where sqlglot cannot parse the query.
    """
    try:
        tree = parse(sql).copy()
    except UnparsedSql:
        return None
    added = []
    for query in tree.find_all(exp.Query):
        order = query.args.get("order")
        if order is not None and (query is tree or query.args.get("limit")):
            columns = width if query is tree else _width(query)
            terms = [exp.Ordered(this=exp.Literal.number(column), desc=False) for column in range(1, columns + 1)]
            order.set("expressions", [*order.expressions, *terms])
            added += terms
    if not added:
        return None
    rising = tree.sql(dialect="sqlite", copy=False)
    for term in added:
        term.set("desc", True)
    return rising, tree.sql(dialect="sqlite", copy=False)


def rewritten(sql: str) -> str:
    """The query as sqlglot writes it, unchanged: whoever compares variants checks that this one means the same."""
    return parse(sql).sql(dialect="sqlite")


def _width(query: exp.Query) -> int:
    """How many columns an inner query surely has: one, where a star hides their number."""
    return 1 if any(column.is_star for column in query.selects) else len(query.selects)


SqlValue = str | int | float | bytes | None

KEYWORDS = {"current_date": "date", "current_time": "time", "current_timestamp": "datetime"}
_TIME_ARGUMENT = {"date": 0, "time": 0, "datetime": 0, "julianday": 0, "unixepoch": 0, "strftime": 1}
CLOCK_FUNCTIONS = frozenset({*KEYWORDS, *_TIME_ARGUMENT})


def set_clock(bare: sqlite3.Connection, now: str) -> None:
    """Make CURRENT_DATE and its like, and 'now' in the date functions, mean ``now`` ("YYYY-MM-DD HH:MM:SS", UTC).

    SQLite has no setting for this, so its functions are replaced by wrappers around those of a second,
    untouched connection.
    """
    bare.execute("PRAGMA trusted_schema = ON")  # generated columns may call the wrappers as they may the originals
    builtin = sqlite3.connect(":memory:", isolation_level=None)
    for keyword, function in KEYWORDS.items():
        bare.create_function(keyword, 0, _fixed(builtin, function, now))
    for function, position in _TIME_ARGUMENT.items():
        bare.create_function(function, -1, _wrapped(builtin, function, position, now), deterministic=True)


def _fixed(builtin: sqlite3.Connection, function: str, now: str) -> Callable[[], str]:
    (value,) = builtin.execute(f"SELECT {function}(?)", (now,)).fetchone()
    return lambda: value


def _wrapped(builtin: sqlite3.Connection, function: str, position: int, now: str) -> Callable[..., SqlValue]:
    def call(*arguments: SqlValue) -> SqlValue:
        values = list(arguments)
        if len(values) == position:  # no time value: SQLite takes 'now'
            values.append(now)
        elif str(values[position]).strip().lower() == "now":
            values[position] = now
        marks = ", ".join("?" * len(values))
        return builtin.execute(f"SELECT {function}({marks})", values).fetchone()[0]

    return call


RANDOM_FUNCTIONS = frozenset({"random", "randomblob"})
CONCAT_FUNCTIONS = frozenset({"group_concat", "string_agg", "json_group_array", "json_group_object"})
ROWID_NAMES = frozenset({"rowid", "_rowid_", "oid"})  # a copy numbers its rows anew
RANDOM_RUNS = 6  # a two-way choice passes all of them with a chance of 1 in 64
CLOCKS = ("1987-03-09 02:17:41", "2051-10-26 19:48:03")
SHADOW_ROWS = 50_000  # larger tables keep their order: copying them would take longer than it is worth


class Probes:
    """Connections to one database on which the same query meets other circumstances; opened when first needed."""

    def __init__(self, database: GoldDatabase) -> None:
        self._database = database
        self._connections: dict[str, GoldConnection] = {}
        self._shadowed: set[str] = set()

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()

    def cause(self, sql: str, judgement: Judgement, seconds: float) -> str:
        """Why the rows of a kept gold are not stable (a cause of ``corpus.reasons``), or nothing.

        All probes together take at most as many steps as one query may, and ``seconds`` as a net above that; one that
        fails or runs out of them proves nothing. Raises MemoryError as the connection does.
        """
        rows, touched = judgement.rows, judgement.touched
        again = _Again(
            time.monotonic() + seconds, max(Limits.rows, len(rows)), self._database.connection.limits["steps"]
        )
        ordered = is_ordered(sql)
        ties = tie_sizes(sql, rows, partial(again.rows_or_none, self._database.connection)) if ordered else ()
        words = set(re.findall(r"\w+", fold_name(sql)))
        for kind, connection in self._circumstances(touched, () if words & ROWID_NAMES else judgement.verdict.tables):
            with suppress(SqlError):
                others = again.rows(connection, sql)
                if not same_results(rows, others, ordered, ties):
                    return kind or _order_cause(words, touched, tie=ordered and same_results(rows, others, False))
        with suppress(SqlError):
            return self._tie_cause(sql, rows, ordered, ties, again)
        return ""

    def _tie_cause(self, sql: str, rows: list[tuple], ordered: bool, ties: tuple[int, ...], again: "_Again") -> str:
        variants = tie_variants(sql, len(rows[0])) if rows else None
        if variants is None:
            return ""
        connection = self._database.connection
        rising, falling = (again.rows(connection, variant) for variant in variants)
        if same_results(rising, falling, ordered, ties):
            return ""
        if not same_results(rows, again.rows(connection, rewritten(sql)), ordered, ties):
            return ""  # sqlglot writes another meaning, so its variants prove nothing
        return reasons.TIE_ORDER if ordered and same_results(rising, falling, False) else reasons.LIMIT_TIES

    def _circumstances(self, touched: Touched, tables: tuple[str, ...]) -> Iterator[tuple[str, GoldConnection]]:
        """Pairs of the cause that a difference proves (empty: order) and the connection to run on."""
        if touched.functions & RANDOM_FUNCTIONS:
            yield from ((reasons.RANDOM, self._database.connection) for _ in range(RANDOM_RUNS))
        if touched.functions & CLOCK_FUNCTIONS:
            yield from ((reasons.CLOCK, self._connection(now, partial(set_clock, now=now))) for now in CLOCKS)
        yield "", self._connection("reversed", reverse_scans)
        if tables:
            yield "", self._shadow(tables)

    def _connection(self, name: str, change: Callable[[sqlite3.Connection], None]) -> GoldConnection:
        """The connection of that name; when it is opened, ``change`` makes its circumstances."""
        if name not in self._connections:
            self._connections[name] = GoldConnection(self._database.path)
            with self._connections[name].unguarded() as bare:
                change(bare)
        return self._connections[name]

    def _shadow(self, tables: tuple[str, ...]) -> GoldConnection:
        """A connection on which ``tables`` are temporary copies, their rows stored last to first."""
        connection = self._connection("shadow", copies_to_file)
        missing = [table for table in tables if table not in self._shadowed]
        if missing:
            self._shadowed.update(missing)
            with connection.unguarded() as bare:
                copy_reversed(bare, missing)
        return connection


@dataclass
class _Again:
    """Runs of variants of one gold that share their ``steps``; ``deadline`` is a time of ``time.monotonic()``."""

    deadline: float
    most: int
    steps: int

    def rows(self, connection: GoldConnection, sql: str) -> list[tuple]:
        whole = connection.limits["steps"]
        connection.limits["steps"] = max(0, self.steps)
        try:
            return connection.rows(sql, self.deadline - time.monotonic(), self.most)
        finally:
            connection.limits["steps"] = whole
            self.steps -= connection.steps

    def rows_or_none(self, connection: GoldConnection, sql: str) -> list[tuple] | None:
        """The rows, or None where the variant does not run."""
        with suppress(SqlError):
            return self.rows(connection, sql)
        return None


def reverse_scans(bare: sqlite3.Connection) -> None:
    """Let SQLite scan last to first wherever a query does not say in which order."""
    bare.execute("PRAGMA reverse_unordered_selects = ON")


def copies_to_file(bare: sqlite3.Connection) -> None:
    """Keep temporary tables out of the memory that later golds need."""
    bare.execute("PRAGMA temp_store = FILE")


def copy_reversed(bare: sqlite3.Connection, tables: Iterable[str]) -> None:
    """Shadow each table by a temporary copy whose rows are stored last to first; one that cannot be copied stays."""
    bare.execute("PRAGMA query_only = OFF")
    for table in tables:
        with suppress(sqlite3.Error):
            _copy_reversed(bare, table)
    bare.execute("PRAGMA query_only = ON")


def _copy_reversed(connection: sqlite3.Connection, table: str) -> None:
    """Shadow a table by a temporary one. Left alone: large ones, and collations, which PRAGMA does not show."""
    name = quote_name(table)
    (ddl,) = connection.execute(
        "SELECT sql FROM main.sqlite_master WHERE type = 'table' AND name = ?", (table,)
    ).fetchone()
    size = connection.execute(f"SELECT count(*) FROM (SELECT 1 FROM main.{name} LIMIT {SHADOW_ROWS + 1})").fetchone()[0]
    if size > SHADOW_ROWS or "collate" in ddl.lower():
        return
    columns = [(row[1], row[2]) for row in connection.execute(f"PRAGMA main.table_xinfo({name})") if row[6] != 1]
    listed = ", ".join(quote_name(column) for column, _ in columns)
    (strict,) = connection.execute("SELECT strict FROM pragma_table_list WHERE schema = 'main' AND name = ?", (table,))
    kinds = [affinity("BLOB" if strict[0] and declared == "ANY" else declared) for _, declared in columns]
    typed = ", ".join(f"{quote_name(column)} {kind}" for (column, _), kind in zip(columns, kinds, strict=True))
    connection.execute(f"CREATE TEMP TABLE {name} ({typed})")
    numbered = f'SELECT {listed}, row_number() OVER () AS "stored at" FROM main.{name}'
    try:
        connection.execute(f'INSERT INTO temp.{name} SELECT {listed} FROM ({numbered}) ORDER BY "stored at" DESC')
    except sqlite3.Error:
        connection.execute(f"DROP TABLE temp.{name}")  # an empty copy would answer otherwise
        raise


def affinity(declared: str) -> str:
    """The column affinity that SQLite derives from a declared type (its documentation, "Datatypes", 3.1)."""
    kind = declared.upper()
    for parts, name in ((("INT",), "INTEGER"), (("CHAR", "CLOB", "TEXT"), "TEXT"), (("BLOB",), "BLOB")):
        if any(part in kind for part in parts):
            return name
    if not kind:
        return "BLOB"
    return "REAL" if any(part in kind for part in ("REAL", "FLOA", "DOUB")) else "NUMERIC"


def _order_cause(words: set[str], touched: Touched, tie: bool) -> str:
    if tie:
        return reasons.TIE_ORDER
    if touched.functions & CONCAT_FUNCTIONS:
        return reasons.CONCAT_ORDER
    return reasons.LIMIT_TIES if "limit" in words else reasons.ROW_ORDER
