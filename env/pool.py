"""Worker processes that run untrusted SQL: started warm, shared by threads, ended and replaced when a query hangs.

A sandbox has a home worker, so that its connection there stays warm. A caller that has waited a moment behind a slow
query goes to an overflow worker instead. One spare process always stands by, so that after a kill the next query is
answered at once.
"""

import atexit
import itertools
import marshal
import os
import resource
import sqlite3
import threading
import weakref
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic
from typing import Any

from sqale_grpo.env.budget import Budget
from sqale_grpo.env.connect import check_sqlite
from sqale_grpo.env.limits import Limits, Query, SqlError
from sqale_grpo.env.process import Worker, death
from sqale_grpo.env.query import Reply
from sqale_grpo.env.slots import Slot, take_free
from sqale_grpo.env.verdict import timeout_text
from sqale_grpo.env.wire import framed, send

# A worker stops a query itself at the limit; this much later it is ended, whatever it is doing.
GRACE_SECONDS = 0.4
# How long to wait for the home worker, whose connection is warm, before an idle home of others will do: opening a
# connection there costs about 1 ms. A home that has worked longer than the latter at one request counts as held up.
SHORT_PATIENCE_SECONDS = 0.002
PATIENCE_SECONDS = 0.02
ATTEMPTS = 5
CONNECTIONS = 128  # a worker's open connections; the one unused longest is closed first
DESCRIPTORS = 16, 3  # what a worker uses besides, and for a connection at most: the file, its log, the log's memory
GOLDEN = 0.6180339887498949  # multiples of it spread evenly, also every second or third key alone
HOMES = 16  # no more than this many, however many cores: a single process' threads cannot keep more busy


def most_connections() -> int:
    """How many a worker may hold open: fewer than ``CONNECTIONS`` where this process may open few files."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    besides, each = DESCRIPTORS
    return CONNECTIONS if soft == resource.RLIM_INFINITY else max(1, min(CONNECTIONS, (soft - besides) // each))


class Work:
    """Queries of one client on their way: the answers so far, and what is still to be asked."""

    def __init__(self, client: "Client", queries: Sequence[Query], budget: Budget | None) -> None:
        self.client, self.queries, self.budget = client, queries, budget
        self.replies: list[Reply] = []
        self.one_by_one = False
        self.again = -1  # place of a query that was run a second time

    @property
    def done(self) -> bool:
        """Is there nothing to ask any more?"""
        return len(self.replies) >= len(self.queries) or bool(self.budget and self.budget.spent)

    def next_batch(self) -> Sequence[Query]:
        """What to ask next."""
        start = len(self.replies)
        return self.queries[start : start + 1 if self.one_by_one else len(self.queries)]

    def add(self, reply: Reply, seconds: float, steps: int = 0) -> None:
        """Enter an answer; a first failure of the machine is none."""
        place = len(self.replies)
        if reply[0] == "machine" and self.again != place:
            self.again = place
            return
        self.replies.append(reply)
        if self.budget:
            self.budget.note(self.queries[place].counts, reply, steps, seconds)


@dataclass(frozen=True)
class Client:
    """Whose connections they are: one sandbox' key, the database as an SQLite URI ("": none), its queries' limits.

    ``live``: other programs may write the file.
    """

    key: int
    uri: str
    limits: Limits
    live: bool = False


class WorkerPool:
    """Processes that hold connections and run queries for any number of threads.

    ``workers``: home workers, by default one a core this process may use (2 to 16); twice as many more start when those
    are held up by slow queries. Processes start when first needed. A forked child starts its own.
    """

    def __init__(self, workers: int | None = None) -> None:
        if workers is not None and workers < 1:
            raise ValueError(f"a worker pool needs at least 1 worker, not {workers}")
        check_sqlite(sqlite3.sqlite_version_info)
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        self.homes = workers or max(2, min(HOMES, cores))
        self._keys = itertools.count(1)
        self.scratch = self.client("", Limits(seconds=1.0))  # no database: its statements are compiled, not run
        self._reset()
        _pools.add(self)

    def _reset(self) -> None:
        self._slots = [Slot() for _ in range(3 * self.homes)]
        self._spare: Worker | None = None
        self._spare_lock = threading.Lock()
        self.closed = False

    def client(self, uri: str, limits: Limits, live: bool = False) -> Client:
        """A name for one sandbox' connections: two sandboxes never share one, also on the same file."""
        return Client(next(self._keys), uri, limits, live)

    @property
    def pids(self) -> list[int]:
        """Ids of the processes that run now, the spare too."""
        workers = [slot.worker for slot in self._slots] + [self._spare]
        return [worker.process.pid for worker in workers if worker is not None]

    def run(self, client: Client, sql: str, cap: int, partial: bool) -> tuple:
        """Run one statement: (columns, tables, (truncated, chunks of marshalled rows)).

        More than ``cap`` rows are cut off where ``partial``, else an error. Raises SqlError for the statement,
        RuntimeError when the pool is closed or no worker starts.
        """
        ((kind, first, second, third),) = self.run_many(client, [Query(sql, cap, partial)])
        if kind:
            raise SqlError(kind, first)
        return first, second, third

    def run_many(self, client: Client, queries: Sequence[Query], budget: Budget | None = None) -> list[Reply]:
        """Run statements one after the other, each within its own limits; one exchange of messages if all goes well.

        An answer is ("", columns, tables, (truncated, chunks)) or (kind, message, None, None), as of
        ``Connection.run``. Fewer answers than queries: ``budget`` was spent. Raises RuntimeError.

        A query that a failure of the machine kept from its end is run once more, on a fresh worker.
        """
        work = Work(client, queries, budget)
        slot = self._acquire(client.key)
        slot.since = monotonic()
        try:
            while not work.done:
                batch = work.next_batch()
                try:
                    worker = self._send(slot, client, batch, budget)
                except OSError as error:  # no process or no descriptor left, or all are killed while they start
                    work.one_by_one = True
                    work.add(("machine", f"no process can run the query: {error}", None, None), 0.0)
                    continue
                self._collect(slot, worker, work, len(work.replies) + len(batch))
        finally:
            slot.release()
        return work.replies

    def confinement(self) -> dict[str, str]:
        """What the kernel forbids a worker, by layer (``env.confinement``). Starts one where none runs."""
        slot = self._acquire(self.scratch.key)
        try:
            worker = slot.worker = slot.worker or self._new_worker()
            worker.wait_ready()
            return worker.confinement
        finally:
            slot.release()

    def _acquire(self, key: int) -> Slot:
        """A slot whose lock we hold: the home's, or after a moment another that is free."""
        homes = self._slots[: self.homes]
        home = homes[int(key * GOLDEN % 1 * self.homes)]
        if home.lock.acquire(timeout=SHORT_PATIENCE_SECONDS):
            return home
        while True:
            held_up = monotonic() - home.since > PATIENCE_SECONDS
            slot = take_free(self._slots if held_up else homes, key)
            if slot is not None:
                return slot
            if home.lock.acquire(timeout=PATIENCE_SECONDS):
                return home

    def _send(self, slot: Slot, client: Client, queries: Sequence[Query], budget: Budget | None) -> Worker:
        """Hand the queries to the slot's worker, or to a new one where that is gone. OSError where there is none."""
        for _ in range(ATTEMPTS):
            worker = slot.worker = slot.worker or self._new_worker()
            try:
                worker.wait_ready()
                worker.set_timeout(client.limits.seconds + GRACE_SECONDS)
                send(worker.descriptor, self._request(slot, worker, client, queries, budget))
            except (BrokenPipeError, ConnectionResetError):
                self._end(slot)  # killed from outside before it had the query: another may have it
            except BaseException:
                self._end(slot)
                raise
            else:
                return worker
        raise ChildProcessError(f"{ATTEMPTS} in a row were killed from outside; is memory used up?")

    def _request(
        self, slot: Slot, worker: Worker, client: Client, queries: Sequence[Query], budget: Budget | None
    ) -> bytes:
        closing = slot.take_closing() if slot.closing else ()
        opening = None
        if client.key in worker.opened:
            worker.opened.move_to_end(client.key)
        else:
            if len(worker.opened) >= most_connections():
                closing += (worker.opened.popitem(last=False)[0],)
            worker.opened[client.key] = None
            opening = (client.uri, vars(client.limits), client.live)
        account = budget.account() if budget else None
        message: Any = (closing, client.key, opening, [tuple(query) for query in queries], account)
        return framed(marshal.dumps(message))

    def _collect(self, slot: Slot, worker: Worker, work: "Work", whole: int) -> None:
        """Take the worker's answers until there are ``whole`` or it is of no more use; what is left is asked anew."""
        started = monotonic()
        try:
            while len(work.replies) < whole and slot.worker is worker and not work.done:
                self._take(slot, worker, work, marshal.loads(worker.reader.receive()))
        except BlockingIOError:
            missing = whole - len(work.replies)
            answers, all_told = worker.last_words(missing) if missing > 1 else ((), True)
            for answer in answers:
                self._take(slot, worker, work, answer)
            self._end(slot)
            if not all_told:
                work.one_by_one = True  # to know which of them it was
            elif len(work.replies) < whole and not work.done:
                work.add(("timeout", timeout_text(work.client.limits.seconds), None, None), monotonic() - started)
        except (EOFError, ConnectionError):
            self._end(slot)
            if self.closed:
                raise RuntimeError("this worker pool was closed while the query ran") from None
            if whole - len(work.replies) > 1:
                work.one_by_one = True  # to know whose end it was
            else:
                work.add((*death(worker.process.returncode), None, None), monotonic() - started)
        except BaseException:
            self._end(slot)  # its answers would be taken for the next query's
            raise

    def _take(self, slot: Slot, worker: Worker, work: "Work", answer: tuple) -> None:
        *reply, steps, seconds, connected, recycle = answer
        work.add(tuple(reply), seconds, steps)
        if recycle:
            self._end(slot)
        elif not connected:
            worker.opened.pop(work.client.key, None)

    def _new_worker(self) -> Worker:
        """The spare, or a new process; another spare is started beside."""
        if self.closed:
            raise RuntimeError("this worker pool is closed")
        with self._spare_lock:
            worker, self._spare = self._spare, None
        worker = worker or Worker()
        threading.Thread(target=self._refill, name="sql-worker-spare", daemon=True).start()
        return worker

    def _refill(self) -> None:
        with self._spare_lock:
            if self._spare is None and not self.closed:
                with suppress(OSError):  # whoever needs a worker meets it again, and says so
                    self._spare = Worker()

    @staticmethod
    def _end(slot: Slot) -> None:
        if slot.worker is not None:
            slot.worker.end()
        slot.worker = None

    def forget(self, client: Client) -> None:
        """Close a sandbox' connections: now where the worker is idle, else after its query. Never waits."""
        for slot in self._slots:
            worker = slot.worker
            if worker is not None and client.key in worker.opened:
                slot.closing.append(client.key)
                if slot.lock.acquire(blocking=False):
                    slot.release()

    def close(self) -> None:
        """End all processes; queries that still run fail. Closing twice does nothing."""
        self.closed = True
        with self._spare_lock:
            spare, self._spare = self._spare, None
        if spare is not None:
            spare.end()
        for slot in self._slots:
            worker = slot.worker
            if worker is not None:
                worker.process.kill()  # a query that runs there ends now, and its thread lets go of the lock
            with slot.lock:
                self._end(slot)

    def __enter__(self) -> "WorkerPool":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _abandon(self) -> None:
        for worker in [slot.worker for slot in self._slots] + [self._spare]:
            if worker is not None:
                worker.abandon()
        self._reset()


_pools: "weakref.WeakSet[WorkerPool]" = weakref.WeakSet()
_default: list[WorkerPool] = []
_default_lock = threading.Lock()


def default_pool() -> WorkerPool:
    """The pool of this process, started on first use and ended with the process."""
    with _default_lock:
        if not _default or _default[0].closed:
            _default[:] = [WorkerPool()]
        return _default[0]


def _close_all() -> None:
    for pool in list(_pools):
        pool.close()


def _after_fork() -> None:
    global _default_lock
    _default_lock = threading.Lock()
    for pool in list(_pools):
        pool._abandon()


atexit.register(_close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
