"""Running one gold query on one database: read-only, under limits, with a note of what it touched.

A progress handler ends most queries at the time limit. A single long call of a function never polls it: the
process that runs this code is ended from outside then (see ``corpus.workers``).
"""

import marshal
import re
import sqlite3
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from sqale_grpo.corpus.gold_tables import fold

# The limits of the environment: a gold that runs here and not there would end a training run.
ROWS = 10_000
LENGTH = 1_000_000  # bytes of a string or blob
LIKE_PATTERN = 5_000
INSTRUCTIONS = 5_000_000
# Below the environment's 256 and 64 MB: there Python's own memory counts, too.
HEAP_MB = 192
RESULT_MB = 56

# Atomic, so that many comments cannot be divided in many ways.
_EXPLAIN = re.compile(r"(?>\s|--[^\n]*\n|/\*.*?\*/)*+explain\b", re.IGNORECASE | re.DOTALL)
POLL = 20_000  # virtual machine steps between looks at the clock: about a millisecond
PORTION = 256  # rows fetched before their size is looked at

SCHEMA_TABLES = frozenset({"sqlite_master", "sqlite_schema", "sqlite_temp_master", "sqlite_temp_schema"})
_ALLOWED = frozenset({sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE})
_REFUSED_FUNCTIONS = frozenset({"load_extension", "fts3_tokenizer", "sqlite_log"})  # they reach out of SQLite


class QueryError(Exception):
    """The query did not run to its end."""


class QueryTimeout(QueryError):
    """The query ran out of time."""


class TooManyRows(QueryError):
    """The query returns more rows than asked for."""


@dataclass
class Touched:
    """What SQLite's authorizer saw while it compiled a query; names folded to lower case."""

    tables: set[str] = field(default_factory=set)  # base tables, views, common tables and table-valued functions
    functions: set[str] = field(default_factory=set)


def connect(path: str | Path) -> sqlite3.Connection:
    """A read-only connection to a file that nobody writes, with the limits set; text keeps bytes that are not UTF-8."""
    connection = sqlite3.connect(
        f"{Path(path).absolute().as_uri()}?mode=ro&immutable=1", uri=True, isolation_level=None
    )
    connection.text_factory = lambda data: data.decode("utf-8", "surrogateescape")
    connection.execute(f"PRAGMA hard_heap_limit = {HEAP_MB * 1024 * 1024}")
    connection.execute("PRAGMA temp_store = MEMORY")
    _declare_virtual_tables(connection)
    for limit, bound in (
        (sqlite3.SQLITE_LIMIT_LENGTH, LENGTH),
        (sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH, LIKE_PATTERN),
        (sqlite3.SQLITE_LIMIT_VDBE_OP, INSTRUCTIONS),
        (sqlite3.SQLITE_LIMIT_ATTACHED, 0),
    ):
        connection.setlimit(limit, bound)
    return connection


def _declare_virtual_tables(connection: sqlite3.Connection) -> None:
    """Now, before there is an authorizer: while SQLite declares one it asks for writes that must be refused later."""
    query = "SELECT name FROM sqlite_master WHERE type = 'table' AND sql LIKE 'create virtual %'"
    for (name,) in connection.execute(query).fetchall():
        with suppress(sqlite3.Error, UnicodeError):  # a module that this SQLite lacks: the queries that use it fail
            connection.execute(f"SELECT 1 FROM {quote_name(name)} LIMIT 0")


def run(connection: sqlite3.Connection, sql: str, deadline: float, most: int = ROWS) -> tuple[list[tuple], Touched]:
    """All rows of ``sql``, at most ``most``, and what it touched. ``deadline`` is a time of ``time.monotonic()``.

    Raises QueryTimeout, TooManyRows, or QueryError with SQLite's own message.
    """
    if _EXPLAIN.match(sql):
        raise QueryError("EXPLAIN shows how a query would run and answers nothing")
    touched = Touched()
    connection.set_authorizer(_authorizer(touched))
    connection.set_progress_handler(lambda: time.monotonic() > deadline, POLL)
    try:
        cursor = connection.execute(sql)
        if cursor.description is None:
            raise QueryError("not a query: it yields no rows")
        rows = _fetch(cursor, most + 1)
        cursor.close()
    except (sqlite3.Error, sqlite3.Warning, ValueError, MemoryError, OverflowError) as error:
        if str(error) == "interrupted" or time.monotonic() > deadline:
            raise QueryTimeout("time limit reached") from error
        raise QueryError(str(error) or type(error).__name__) from error
    finally:
        connection.set_progress_handler(None, 0)
        connection.set_authorizer(None)
    if len(rows) > most:
        raise TooManyRows(f"more than {most} rows")
    return rows, touched


def _fetch(cursor: sqlite3.Cursor, most: int) -> list[tuple]:
    """At most ``most`` rows, portion by portion, so that a result does not fill the memory before it is looked at."""
    rows: list[tuple] = []
    size = 0
    while len(rows) < most and (portion := cursor.fetchmany(min(PORTION, most - len(rows)))):
        rows += portion
        size += len(marshal.dumps(portion))
        if size > RESULT_MB * 1_000_000:
            raise QueryError(f"the result is larger than {RESULT_MB} MB")
    return rows


def _authorizer(touched: Touched) -> Callable[..., int]:
    def authorize(action: int, first: str | None, second: str | None, *_: str | None) -> int:
        if action == sqlite3.SQLITE_READ:
            touched.tables.add(fold(first or ""))
        elif action == sqlite3.SQLITE_FUNCTION:
            touched.functions.add(fold(second or ""))
            if fold(second or "") in _REFUSED_FUNCTIONS:
                return sqlite3.SQLITE_DENY
        elif action == sqlite3.SQLITE_PRAGMA and first == "data_version":
            return sqlite3.SQLITE_OK  # what full-text tables ask for themselves
        elif action == sqlite3.SQLITE_UPDATE and fold(first or "") in SCHEMA_TABLES:
            return sqlite3.SQLITE_OK  # how SQLite declares a table-valued function such as json_each
        return sqlite3.SQLITE_OK if action in _ALLOWED else sqlite3.SQLITE_DENY

    return authorize


def quote_name(name: str) -> str:
    """An identifier as SQL."""
    return '"' + name.replace('"', '""') + '"'
