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

import math
import re
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress

from sqlglot import exp

from sqale_grpo.corpus import reasons
from sqale_grpo.corpus.execution import ROWS, QueryError, Touched, connect, quote_name, run
from sqale_grpo.corpus.gold import GoldDatabase
from sqale_grpo.corpus.gold_tables import UnparsedSql, fold, is_ordered, parse


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


def set_clock(connection: sqlite3.Connection, now: str) -> None:
    """Make CURRENT_DATE and its like, and 'now' in the date functions, mean ``now`` ("YYYY-MM-DD HH:MM:SS", UTC).

    SQLite has no setting for this, so its functions are replaced by wrappers around those of a second,
    untouched connection.
    """
    builtin = sqlite3.connect(":memory:", isolation_level=None)
    for keyword, function in KEYWORDS.items():
        connection.create_function(keyword, 0, _fixed(builtin, function, now))
    for function, position in _TIME_ARGUMENT.items():
        connection.create_function(function, -1, _wrapped(builtin, function, position, now), deterministic=True)


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
        self._connections: dict[str, sqlite3.Connection] = {}
        self._shadowed: set[str] = set()

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()

    def cause(self, sql: str, rows: list[tuple], touched: Touched, tables: tuple[str, ...], seconds: float) -> str:
        """Why the rows of ``sql`` are not stable (a cause of ``corpus.reasons``), or nothing.

        All probes together take at most ``seconds``; one that fails or runs out of time proves nothing.
        """
        deadline, most = time.monotonic() + seconds, max(ROWS, len(rows))
        ordered = is_ordered(sql)
        words = set(re.findall(r"\w+", fold(sql)))
        for kind, connection in self._circumstances(touched, () if words & ROWID_NAMES else tables):
            with suppress(QueryError):
                again = run(connection, sql, deadline, most)[0]
                if not same_rows(rows, again, ordered):
                    return kind or _order_cause(words, touched, tie=ordered and same_rows(rows, again, False))
        with suppress(QueryError):
            return self._tie_cause(sql, rows, ordered, deadline, most)
        return ""

    def _tie_cause(self, sql: str, rows: list[tuple], ordered: bool, deadline: float, most: int) -> str:
        variants = tie_variants(sql, len(rows[0])) if rows else None
        if variants is None:
            return ""
        connection = self._database.connection
        rising, falling = (run(connection, variant, deadline, most)[0] for variant in variants)
        if same_rows(rising, falling, ordered):
            return ""
        if not same_rows(rows, run(connection, rewritten(sql), deadline, most)[0], ordered):
            return ""  # sqlglot writes another meaning, so its variants prove nothing
        return reasons.TIE_ORDER if ordered and same_rows(rising, falling, False) else reasons.LIMIT_TIES

    def _circumstances(self, touched: Touched, tables: tuple[str, ...]) -> Iterator[tuple[str, sqlite3.Connection]]:
        """Pairs of the cause that a difference proves (empty: order) and the connection to run on."""
        if touched.functions & RANDOM_FUNCTIONS:
            yield from ((reasons.RANDOM, self._database.connection) for _ in range(RANDOM_RUNS))
        if touched.functions & CLOCK_FUNCTIONS:
            yield from ((reasons.CLOCK, self._clock(now)) for now in CLOCKS)
        yield "", self._reversed()
        if tables:
            yield "", self._shadow(tables)

    def _open(self, name: str) -> sqlite3.Connection:
        if name not in self._connections:
            self._connections[name] = connect(self._database.path)
        return self._connections[name]

    def _clock(self, now: str) -> sqlite3.Connection:
        known = now in self._connections
        connection = self._open(now)
        if not known:
            set_clock(connection, now)
        return connection

    def _reversed(self) -> sqlite3.Connection:
        connection = self._open("reversed")
        connection.execute("PRAGMA reverse_unordered_selects = ON")
        return connection

    def _shadow(self, tables: tuple[str, ...]) -> sqlite3.Connection:
        """A connection on which ``tables`` are temporary copies, their rows stored last to first."""
        connection = self._open("shadow")
        connection.execute("PRAGMA temp_store = FILE")  # the copies must not take from the memory of later golds
        for table in tables:
            if table not in self._shadowed:
                self._shadowed.add(table)
                with suppress(sqlite3.Error):
                    _copy_reversed(connection, table)
        return connection


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


def same_rows(a: list[tuple], b: list[tuple], ordered: bool) -> bool:
    """Equal as sequences, or as multisets; reals within 1e-6, since sums depend on the order of their terms."""
    if len(a) != len(b):
        return False
    if not ordered:
        if Counter(a) == Counter(b):
            return True
        a, b = sorted(a, key=_sort_key), sorted(b, key=_sort_key)
    return all(len(x) == len(y) and all(map(_same_value, x, y)) for x, y in zip(a, b, strict=True))


def _same_value(x: object, y: object) -> bool:
    if isinstance(x, int | float) and isinstance(y, int | float):
        return x == y or math.isclose(x, y, rel_tol=1e-6, abs_tol=1e-12)
    return type(x) is type(y) and x == y


def _sort_key(row: tuple) -> tuple:
    return tuple((0, float(f"{v:.5g}"), "") if isinstance(v, float | int) else (1, 0.0, repr(v)) for v in row)
