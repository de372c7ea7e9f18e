"""Running one gold query on one database: read-only, under limits, with a note of what it touched.

A progress handler ends most queries at the time limit. A single long call of a function never polls it: the
process that runs this code is ended from outside then (see ``corpus.workers``).
"""

import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from corpus.gold_tables import fold

ROWS = 10_000  # what the training environment fetches of a result, so a longer gold could never be matched
LENGTH = 1_000_000  # bytes of a string or blob, as in the training environment
POLL = 20_000  # virtual machine steps between looks at the clock: about a millisecond
HEAP_MB = 1024

SCHEMA_TABLES = frozenset({"sqlite_master", "sqlite_schema", "sqlite_temp_master", "sqlite_temp_schema"})
_ALLOWED = frozenset({sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE})


class QueryError(Exception):
    """The query did not run to its end."""


class QueryTimeout(QueryError):
    """The query ran out of time."""


class TooManyRows(QueryError):
    """The query returns more than ROWS rows."""


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
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LENGTH)
    connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
    return connection


def run(connection: sqlite3.Connection, sql: str, deadline: float) -> tuple[list[tuple], Touched]:
    """All rows of ``sql``, and what it touched. ``deadline`` is a time of ``time.monotonic()``.

    Raises QueryTimeout, TooManyRows, or QueryError with SQLite's own message.
    """
    touched = Touched()
    connection.set_authorizer(_authorizer(touched))
    connection.set_progress_handler(lambda: time.monotonic() > deadline, POLL)
    try:
        cursor = connection.execute(sql)
        if cursor.description is None:
            raise QueryError("not a query: it yields no rows")
        rows = cursor.fetchmany(ROWS + 1)
        cursor.close()
    except (sqlite3.Error, sqlite3.Warning, ValueError, MemoryError, OverflowError) as error:
        if str(error) == "interrupted" or time.monotonic() > deadline:
            raise QueryTimeout("time limit reached") from error
        raise QueryError(str(error) or type(error).__name__) from error
    finally:
        connection.set_progress_handler(None, 0)
        connection.set_authorizer(None)
    if len(rows) > ROWS:
        raise TooManyRows(f"more than {ROWS} rows")
    return rows, touched


def _authorizer(touched: Touched) -> Callable[..., int]:
    def authorize(action: int, first: str | None, second: str | None, *_: str | None) -> int:
        if action == sqlite3.SQLITE_READ:
            touched.tables.add(fold(first or ""))
        elif action == sqlite3.SQLITE_FUNCTION:
            touched.functions.add(fold(second or ""))
        elif action == sqlite3.SQLITE_UPDATE and fold(first or "") in SCHEMA_TABLES:
            return sqlite3.SQLITE_OK  # how SQLite declares a table-valued function such as json_each
        return sqlite3.SQLITE_OK if action in _ALLOWED else sqlite3.SQLITE_DENY

    return authorize
