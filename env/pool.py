"""Worker processes that run untrusted SQL: started warm, shared by threads, ended and replaced when a query hangs.

A sandbox has a home worker, so that its connection there stays warm. A caller that has waited a moment behind a slow
query goes to an overflow worker instead. One spare process always stands by, so that after a kill the next query is
answered at once.
"""

import atexit
import itertools
import marshal
import os
import threading
import weakref
from collections import deque
from dataclasses import dataclass

from env.limits import Limits, SqlError
from env.process import Worker, death
from env.query import timeout_text
from env.wire import receive, send

# A worker stops a query itself at the limit; this much later it is ended, whatever it is doing.
GRACE_SECONDS = 0.4
# Waiting behind other queries (0.1 ms each): first for the home worker, whose connection is warm, then for an idle home
# of others, then for anything. Opening a connection elsewhere costs about 1 ms.
SHORT_PATIENCE_SECONDS = 0.002
PATIENCE_SECONDS = 0.02
ATTEMPTS = 5
CONNECTIONS = 128  # a worker's open connections; the one unused longest is closed first
GOLDEN = 0.6180339887498949  # multiples of it spread evenly, also every second or third key alone
HOMES = 16  # no more than this many, however many cores: a single process' threads cannot keep more busy


class Slot:
    """A place for one worker: its lock, and the keys whose connections it may close."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.worker: Worker | None = None
        self.closing: deque[int] = deque()

    def take_closing(self) -> tuple[int, ...]:
        """Keys to close, for the next message; the lock is held."""
        keys = []
        while self.closing:
            key = self.closing.popleft()
            if self.worker is not None and key in self.worker.opened:
                del self.worker.opened[key]
                keys.append(key)
        return tuple(keys)

    def release(self) -> None:
        """Give the worker back; what was to be closed meanwhile is closed now."""
        self.flush()
        self.lock.release()
        while self.closing and self.lock.acquire(blocking=False):
            self.flush()
            self.lock.release()

    def flush(self) -> None:
        """Tell the worker to close what it may; no answer comes. The lock is held."""
        keys = self.take_closing() if self.closing else ()
        if keys and self.worker is not None:
            try:
                send(self.worker.descriptor, marshal.dumps((keys, None, None)))
            except OSError:
                self.worker.end()
                self.worker = None


@dataclass(frozen=True)
class Client:
    """Whose connections they are: one sandbox' key, the database as an SQLite URI ("": none), its queries' limits."""

    key: int
    uri: str
    limits: Limits


class WorkerPool:
    """Processes that hold connections and run queries for any number of threads.

    ``workers``: home workers, by default one a core this process may use (2 to 16); twice as many more start when those
    are held up by slow queries. Processes start when first needed. A forked child starts its own.
    """

    def __init__(self, workers: int | None = None) -> None:
        if workers is not None and workers < 1:
            raise ValueError(f"a worker pool needs at least 1 worker, not {workers}")
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

    def client(self, uri: str, limits: Limits) -> Client:
        """A name for one sandbox' connections: two sandboxes never share one, also on the same file."""
        return Client(next(self._keys), uri, limits)

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
        slot = self._acquire(client.key)
        try:
            kind, first, second, third = self._ask(slot, client, (client.key, sql, cap, partial))
        finally:
            slot.release()
        if kind:
            raise SqlError(kind, first)
        return first, second, third

    def _acquire(self, key: int) -> Slot:
        """A slot whose lock we hold: the home's, or after a moment any that is free."""
        homes = self._slots[: self.homes]
        home = homes[int(key * GOLDEN % 1 * self.homes)]
        if home.lock.acquire(timeout=SHORT_PATIENCE_SECONDS):
            return home
        slot = take_free(homes, key)
        if slot is None and home.lock.acquire(timeout=PATIENCE_SECONDS):
            return home
        while slot is None:
            slot = take_free(self._slots, key)
            if slot is None and home.lock.acquire(timeout=PATIENCE_SECONDS):
                return home
        return slot

    def _ask(self, slot: Slot, client: Client, query: tuple) -> tuple:
        for _ in range(ATTEMPTS):
            worker = slot.worker = slot.worker or self._new_worker()
            try:
                worker.wait_ready()
                worker.set_timeout(client.limits.seconds + GRACE_SECONDS)
                send(worker.descriptor, self._request(slot, worker, client, query))
            except (BrokenPipeError, ConnectionResetError):
                self._end(slot)  # killed from outside before it had the query: another may have it
            except BaseException:
                self._end(slot)
                raise
            else:
                return self._answer(slot, worker, client)
        raise RuntimeError(f"{ATTEMPTS} SQL worker processes in a row were killed from outside: is memory used up?")

    def _request(self, slot: Slot, worker: Worker, client: Client, query: tuple) -> bytes:
        closing = slot.take_closing() if slot.closing else ()
        opening = None
        if client.key in worker.opened:
            worker.opened.move_to_end(client.key)
        else:
            if len(worker.opened) >= CONNECTIONS:
                closing += (worker.opened.popitem(last=False)[0],)
            worker.opened[client.key] = None
            opening = (client.uri, vars(client.limits))
        return marshal.dumps((closing, opening, query))

    def _answer(self, slot: Slot, worker: Worker, client: Client) -> tuple:
        try:
            *reply, connected, recycle = marshal.loads(receive(worker.descriptor))
        except BlockingIOError:
            self._end(slot)
            return "timeout", timeout_text(client.limits.seconds), None, None
        except (EOFError, ConnectionError):
            self._end(slot)
            if self.closed:
                raise RuntimeError("this worker pool was closed while the query ran") from None
            return (*death(worker.process.returncode), None, None)
        except BaseException:
            self._end(slot)  # its answer would be taken for the next query's
            raise
        if recycle:
            self._end(slot)
        elif not connected:
            worker.opened.pop(client.key, None)
        return tuple(reply)

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


def preference(slot: Slot, key: int) -> int:
    """Order in which to try slots: where the connection is warm, where a process runs, the rest."""
    worker = slot.worker
    if worker is None:
        return 2
    return 0 if key in worker.opened else 1


def take_free(slots: list[Slot], key: int) -> Slot | None:
    """One of the slots, locked, without waiting; None where all are taken."""
    for slot in sorted(slots, key=lambda slot: preference(slot, key)):
        if slot.lock.acquire(blocking=False):
            return slot
    return None


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
