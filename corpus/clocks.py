"""A SQLite connection whose clock stands at another time, to see whether a query looks at it."""

import sqlite3
from collections.abc import Callable

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
