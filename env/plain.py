"""How the benchmarks' own scripts run a query: ``cursor.execute(text)`` and ``fetchall()`` of Python's sqlite3.

That differs from the sandbox at the edges. A text without a statement (blank, a comment, ``;``) has no rows and no
error; anything behind the statement's semicolon but blanks and comments, a second semicolon too, is an error; a PRAGMA
that reads a property of the file runs; text that is not UTF-8 is an error, in whichever row it stands; and there is no
limit on rows, so what is kept of them is chosen here. What would write is refused here too, where a script would run it
on a connection that nobody commits.

Runs in the worker process.
"""

import sqlite3
from collections.abc import Callable

ROWS = 256  # fetched at a time, between two looks at the clock


def plain_rows(cursor: sqlite3.Cursor, cap: int, keep: str, check_time: Callable[[], None]) -> list[tuple]:
    """Fetch all rows; the first ``cap`` of them, or with ``keep`` ``different`` each different one once.

    ``check_time`` raises where the time is over. Rows are different as they are in a Python set: 1 is 1.0.
    """
    head: list[tuple] = []
    seen: set[tuple] = set()
    while True:
        rows = cursor.fetchmany(ROWS)
        if keep == "different":
            seen.update(rows)
        elif len(head) < cap:
            head += rows[: cap - len(head)]
        check_time()
        if len(rows) < ROWS:
            return head or list(seen)
