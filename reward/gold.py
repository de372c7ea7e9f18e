"""The gold query's result: computed once for all candidates of a question, on a connection of its own."""

import marshal
import os
import threading
from collections import OrderedDict
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from sqale_grpo.env.connect import real_path
from sqale_grpo.env.errors import UserError
from sqale_grpo.env.pool import WorkerPool
from sqale_grpo.env.sandbox import Limits, QueryResult, Sandbox, SqlError
from sqale_grpo.env.syntax import is_ordered
from sqale_grpo.reward.ties import tie_sizes


class GoldError(UserError):
    """A gold query that does not run to its end: no candidate of its question can be scored."""

    def __init__(self, sql: str, database: Path, error: SqlError, question_id: str = "") -> None:
        super().__init__(sql, database, error, question_id)
        self.sql, self.database, self.error, self.question_id = sql, database, error, question_id

    def __str__(self) -> str:
        of = f" of question {self.question_id}" if self.question_id else ""
        return (
            f"the gold query{of} does not run on {self.database} ({self.error}); leave the question out, as "
            f"`sqale-grpo corpus prepare` does, or give it more time (gold_seconds): {self.sql}"
        )


@dataclass(frozen=True)
class Gold:
    """What candidates are compared with; ``ordered``: as a sequence, since the gold query orders its rows.

    ``ties``: sizes of the groups of rows with equal order keys, in order; () where each row is a group of its own.
    """

    result: QueryResult
    ordered: bool
    ties: tuple[int, ...] = ()


class GoldResults:
    """Gold results by database, query and limits, the last used ones. Any number of threads may ask.

    Who asks while a result is being computed waits for it. A query that failed is not remembered: a time-out may
    have been the machine's fault.
    """

    def __init__(self, entries: int = 256, size: int = 256_000_000) -> None:
        """``entries`` and ``size`` (bytes) bound what is kept."""
        self.entries, self.size = entries, size
        self.forget_all()

    def forget_all(self) -> None:
        """Start anew; also in a forked child, where what other threads were computing or locking never ends."""
        self._futures: OrderedDict[tuple, Future[Gold]] = OrderedDict()  # the one used longest ago first
        self._sizes: dict[tuple, int] = {}  # of those that are done
        self._total = 0
        self._lock = threading.Lock()

    def get(
        self,
        sql: str,
        database: str | Path,
        limits: Limits,
        pool: WorkerPool | None = None,
        immutable: bool = False,
    ) -> Gold:
        """The result of ``sql`` on ``database``. Raises GoldError where it does not run within ``limits``."""
        database = Path(database)
        key = (database.resolve(), file_state(database), sql, limits)
        with self._lock:
            future = self._futures.get(key)
            first = future is None
            if future is None:
                future = self._futures[key] = Future()
            self._futures.move_to_end(key)
        if first:
            self._fill(key, future, database, pool, immutable)
        return future.result()

    def _fill(self, key: tuple, future: Future[Gold], database: Path, pool: WorkerPool | None, immutable: bool) -> None:
        *_, sql, limits = key
        try:
            gold = run_gold(sql, database, limits, pool, immutable)
            size = len(marshal.dumps(gold.result.rows, 2))
        except BaseException as error:
            with self._lock:
                del self._futures[key]
            future.set_exception(error)
            return
        future.set_result(gold)
        with self._lock:
            self._sizes[key] = size
            self._total += size
            self._forget(key)

    def _forget(self, newest: tuple) -> None:
        """Keep to the bounds; the newest stays, and what is still being computed."""
        while len(self._futures) > self.entries or self._total > self.size:
            oldest = next((key for key in self._futures if key in self._sizes and key != newest), None)
            if oldest is None:
                break
            del self._futures[oldest]
            self._total -= self._sizes.pop(oldest)


def run_gold(sql: str, database: Path, limits: Limits, pool: WorkerPool | None, immutable: bool = False) -> Gold:
    """Run a gold query on a fresh connection, which no policy's query has touched."""
    with Sandbox(database, limits, pool, immutable) as sandbox:
        try:
            result = sandbox.execute(sql)
        except SqlError as error:
            raise GoldError(sql, database, error) from error
        ordered = is_ordered(sql)
        ties = tie_sizes(sql, result.rows, partial(rows_of, sandbox)) if ordered else ()
        return Gold(result, ordered, ties)


def rows_of(sandbox: Sandbox, sql: str) -> list[tuple] | None:
    """The rows of a query, or None where it does not run."""
    try:
        return sandbox.execute(sql).rows
    except SqlError:
        return None


def file_state(database: Path) -> tuple[Any, ...]:
    """What changes when a database file, or its write-ahead log, is replaced or written; () for a missing file."""
    state: tuple[Any, ...] = ()
    database = real_path(database)  # SQLite looks for the log beside the file, not beside a link to it
    for file in (database, database.with_name(database.name + "-wal")):
        if file.exists():
            stat = file.stat()
            state += (stat.st_ino, stat.st_mtime_ns, stat.st_size)
    return state


gold_results = GoldResults()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=gold_results.forget_all)
