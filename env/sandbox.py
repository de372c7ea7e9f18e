"""Untrusted SQL on a live SQLite database: it can read that database, and nothing else, within limits.

The statement runs in a worker process (``env.pool``), on a read-only connection of its own (``env.query``), under an
authorizer that allows by list (``env.authorizer``). A query over its time stops itself; if it cannot, its process is
ended and another takes its place.

Covered: writes of any form; other files and databases; extensions and functions that reach the host; settings that
would change a later query's answer; the text of other queries; endless or exploding statements; single calls that
never return; memory; huge results; text that is not UTF-8; a worker that dies; a parent that dies; a file that a
program writes meanwhile; expressions that the file brings along.
Not covered: timing as a side channel; load on the machine within the limits; code that a memory error in SQLite runs
inside the worker, where the kernel has neither Landlock nor seccomp (``env.confinement``).
docs/security.md says how each is held and tested.
"""

import marshal
import os
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from sqale_grpo.env.budget import Budget
from sqale_grpo.env.connect import (
    UNFINISHED,
    holds_changes,
    holds_unfinished_change,
    live_uri,
    read_only_uri,
    real_path,
)
from sqale_grpo.env.limits import Kind, Limits, Query, QueryResult, SqlError
from sqale_grpo.env.pool import WorkerPool, default_pool
from sqale_grpo.env.schema import SchemaGraph
from sqale_grpo.env.syntax import parse_error

__all__ = ["Limits", "QueryResult", "Sandbox", "SqlError", "WorkerPool", "default_pool"]


class Sandbox:
    """One database as a policy meets it. Any number of threads may call it; it shares no connection with another."""

    def __init__(
        self,
        database: str | Path,
        limits: Limits | None = None,
        pool: WorkerPool | None = None,
        immutable: bool = False,
    ) -> None:
        """``immutable``: a file of ours, which nobody writes while this is open; it is read without locks then.

        Raises FileNotFoundError where there is no file, ValueError where it is left in the middle of a change.
        """
        self.database = Path(database)
        self.immutable = immutable
        self._closed = True  # until it is open
        check_file(self.database)
        self.limits = limits or Limits()
        self.pool = pool or default_pool()
        uri = read_only_uri(self.database) if immutable else live_uri(self.database)
        self._client = self.pool.client(uri, self.limits, live=not immutable)
        self._closed = False
        self._check_journal()

    def _check_journal(self) -> None:
        """A live file's journal may be a change that is under way, or one that was left behind: SQLite knows."""
        if self.immutable or not holds_unfinished_change(os.fsencode(real_path(self.database)) + b"-journal"):
            return
        try:
            self.execute("SELECT 1")
        except SqlError as error:
            if error.message.endswith(UNFINISHED):
                self.close()
                raise ValueError(error.message) from error

    def execute(self, sql: str, max_rows: int | None = None) -> QueryResult:
        """Run one statement and fetch its rows.

        ``max_rows`` None: all rows; more than ``limits.rows`` raise SqlError("rows"). A number: at most so many rows,
        and ``truncated`` says whether there are more. Raises SqlError for whatever the statement does wrong.
        """
        (result,) = self.execute_many([(sql, max_rows)])
        if isinstance(result, SqlError):
            raise result
        return result

    def execute_many(
        self, queries: Sequence[tuple[str, int | None]], budget: Budget | None = None
    ) -> list[QueryResult | SqlError]:
        """Run pairs of statement and ``max_rows`` in order, each as ``execute`` would; a failure stops no other.

        One trip to the worker instead of one per statement, which for small statements takes longer than they do.
        """
        return self.ask([self._query(*query) for query in queries], budget)

    def ask(self, queries: Sequence[Query], budget: Budget | None = None) -> list[QueryResult | SqlError]:
        """Run queries in order; those after which ``budget`` is spent are SqlError("not_run")."""
        if self._closed:
            raise RuntimeError(f"this sandbox on {self.database} is closed")
        found = [to_result(*reply) for reply in self.pool.run_many(self._client, queries, budget)]
        left = len(queries) - len(found)
        return found + [SqlError("not_run", f"not run: {budget.spent}") for _ in range(left) if budget]

    def _query(self, sql: str, max_rows: int | None) -> Query:
        if not isinstance(sql, str):
            raise TypeError(f"a query is a str, not {type(sql).__name__}")
        if max_rows is None:
            return Query(sql, self.limits.rows, False)
        if not isinstance(max_rows, int) or max_rows < 0:
            raise ValueError(f"max_rows is {max_rows!r}: it must be a whole number from 0, or None for all rows")
        return Query(sql, min(max_rows, self.limits.rows), True)

    def parse_error(self, sql: str) -> str | None:
        """Why SQLite's parser refuses a text, whatever this database holds; None where it accepts it. Runs nothing."""
        return parse_error(sql, self.pool)

    @cached_property
    def schema(self) -> SchemaGraph:
        """Tables and foreign keys, read once. Raises ValueError where the file is no SQLite database."""
        return SchemaGraph.from_file(self.database, self.pool, self.immutable)

    def close(self) -> None:
        """Close this sandbox' connections in the workers. Closing twice does nothing."""
        if not self._closed:
            self._closed = True
            self.pool.forget(self._client)

    def __enter__(self) -> "Sandbox":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "_closed"):
            self.close()


def to_result(kind: Kind, first: Any, second: Any, third: Any) -> QueryResult | SqlError:
    """A worker's answer (``WorkerPool.run_many``) as the caller sees it."""
    if kind:
        return SqlError(kind, first)
    truncated, chunks = third
    rows = marshal.loads(chunks[0])
    for chunk in chunks[1:]:
        rows += marshal.loads(chunk)
    return QueryResult(first, rows, truncated, frozenset(second))


def check_file(database: Path) -> None:
    """Raises FileNotFoundError where there is no file, ValueError where it has an orphaned write-ahead log.

    A rollback journal is looked for where the file's URI is made.
    """
    if not os.path.isfile(database):
        raise FileNotFoundError(f"no database file at {database}: pass the path of an SQLite file")
    path = os.fsencode(real_path(database))
    log = os.fsdecode(path + b"-wal")
    if holds_changes(path) and not os.path.exists(path + b"-shm"):
        raise ValueError(
            f"{log} holds changes that a program left behind: open {database.name} once with sqlite3 and run "
            "PRAGMA wal_checkpoint(TRUNCATE), or delete the log if it is not the database's"
        )
