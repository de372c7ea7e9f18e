"""Compile one statement on an empty schema and run nothing: what SQLite's own parser says of it.

Runs in the worker process, since compiling is not harmless: a PRAGMA takes effect while it is compiled, also behind
EXPLAIN, and some statements explode there.
"""

import marshal
import sqlite3
from typing import Any

from sqale_grpo.env.authorizer import FUNCTIONS
from sqale_grpo.env.query import Reply
from sqale_grpo.env.verdict import verdict

REFUSED = (sqlite3.SQLITE_PRAGMA, sqlite3.SQLITE_ATTACH, sqlite3.SQLITE_DETACH)
COMPILED: Reply = ("", (), (), (False, (marshal.dumps([]),)))


class Scratch:
    """A connection to a database in memory that stays empty, within the limits of a query."""

    def __init__(self, limits: dict[str, Any]) -> None:
        self.limits = limits
        self.sqlite = sqlite3.connect(":memory:", isolation_level=None, cached_statements=0)
        self.sqlite.setlimit(sqlite3.SQLITE_LIMIT_VDBE_OP, limits["instructions"])
        self.sqlite.setlimit(sqlite3.SQLITE_LIMIT_SQL_LENGTH, limits["sql_length"])
        self.sqlite.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        self.sqlite.set_authorizer(authorize)

    steps = 0  # nothing runs

    def run(self, statement: str, *_: object) -> Reply:
        """No rows where the statement compiles, else the kind and message of its error."""
        explained = statement[:7].lower() == "explain"
        try:
            # What this returns is a plan, whatever the statement: it does not run.
            self.sqlite.execute(statement if explained else f"EXPLAIN QUERY PLAN {statement}").close()
        except (sqlite3.Error, sqlite3.Warning, ValueError, MemoryError) as error:
            return (*verdict(error, self.limits["seconds"]), None, None)
        return COMPILED

    def catalog(self) -> Reply:
        """There is no table."""
        return "", [], None, None


def authorize(action: int, first: str | None, second: str | None, *_: str | None) -> int:
    """Refuse what acts, or could, while it is compiled; all the rest must pass, or it would hide a syntax error."""
    if action in REFUSED or (action == sqlite3.SQLITE_FUNCTION and (second or "").lower() in FUNCTIONS):
        return sqlite3.SQLITE_DENY
    return sqlite3.SQLITE_OK
