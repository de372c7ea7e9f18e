"""The process that runs untrusted SQL: answers requests, one at a time, over the socket that is its standard input.

Started by ``env.pool``. It holds one connection a sandbox, can write no file, and ends itself when its parent is gone.
Standard library modules that are quick to import only: a new worker must be ready in hundredths of a second.
"""

import _thread
import marshal
import os
import resource
import select
import sqlite3
from contextlib import suppress
from time import monotonic
from typing import Any

from sqale_grpo.env.budget import Account, Budget
from sqale_grpo.env.catalog import catalog_reply
from sqale_grpo.env.confinement import confine
from sqale_grpo.env.live import LiveConnection
from sqale_grpo.env.query import Connection, Reply
from sqale_grpo.env.scratch import Scratch
from sqale_grpo.env.verdict import verdict
from sqale_grpo.env.wire import Reader, framed, send

SOCKET = 0
MB = 1 << 20
# Where the system cannot tell that only the parent's side is closed, answers are not held back.
HANG_UP = getattr(select, "POLLRDHUP", 0)
TOGETHER_SECONDS = 0.001 if HANG_UP else 0.0
NO_MEMORY: Reply = ("memory", "out of memory", None, None)
COUNTS = 5  # place in a query


class Outbox:
    """Answers that wait to be sent: each message costs both processes more time than a small query does."""

    def __init__(self) -> None:
        self.lock = _thread.allocate_lock()
        self.waiting: list[bytes] = []
        self.sent = monotonic()

    def add(self, payload: bytes) -> None:
        """Take an answer; send what is there when the last sending was a moment ago."""
        self.waiting.append(framed(payload))
        if monotonic() - self.sent > TOGETHER_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Send what is there."""
        with self.lock:
            if self.waiting:
                send(SOCKET, b"".join(self.waiting))
                self.waiting.clear()
        self.sent = monotonic()


def main() -> None:
    """Serve until the parent closes the socket."""
    limit_process()
    confined = confine()
    outbox, holder, reader = Outbox(), Holder(), Reader(SOCKET)
    _thread.stack_size(256 * 1024)
    _thread.start_new_thread(end_with_parent, (outbox,))
    send(SOCKET, framed(marshal.dumps(confined)))
    try:
        while True:
            serve(holder, outbox, *marshal.loads(reader.receive()))
    except (EOFError, ConnectionError):
        os._exit(0)


def serve(
    holder: "Holder",
    outbox: Outbox,
    closing: tuple[int, ...],
    key: int,
    opening: tuple | None,
    queries: list[tuple],
    account: Account | None,
) -> None:
    """One message: close connections, then run queries on one.

    The rest is left unanswered after a lack of memory or a failure of the machine, and when the budget is spent.
    """
    holder.close(closing)
    outbox.sent = monotonic()
    budget = Budget(*account) if account else None
    for query in queries:
        started = monotonic()
        reply = holder.answer(key, opening, *query)
        connected, recycle = key in holder.connections, reply[:2] == NO_MEMORY[:2] or reply[0] == "machine"
        steps = holder.connections[key].steps if connected else 0
        seconds = monotonic() - started
        outbox.add(packed(reply, steps, seconds, connected, recycle))
        if budget:
            budget.note(query[COUNTS], reply, steps, seconds)
        if recycle or (budget and budget.spent):
            break
    outbox.flush()


def packed(reply: tuple, *more: Any) -> bytes:
    """An answer as bytes: (kind, …, steps, seconds, is the connection open, must the process be replaced)."""
    try:
        return marshal.dumps((*reply, *more))
    except MemoryError:
        return marshal.dumps((*NO_MEMORY, 0, 0.0, False, True))


def limit_process() -> None:
    """No core dumps, no byte written to any file, and the first to go when the machine's memory ends."""
    with suppress(OSError), open("/proc/self/oom_score_adj", "w") as score:
        score.write("1000")
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))


def end_with_parent(outbox: Outbox) -> None:
    """Wait, also while a query runs, for the parent to close the socket or its own side of it, and end the process.

    The latter is how the parent asks for the answers that lie here while a later query hangs.
    """
    poll = select.poll()
    poll.register(SOCKET, HANG_UP)  # requests are the main thread's
    poll.poll()
    with suppress(OSError):
        outbox.flush()
    os._exit(0)


class Holder:
    """The connections of this process by their sandbox' key, and how far its memory may grow."""

    def __init__(self) -> None:
        self.connections: dict[int, Connection | LiveConnection | Scratch] = {}
        self.memory_mb = 0

    def close(self, keys: tuple[int, ...]) -> None:
        """Close connections; one that could not be opened is not there."""
        for key in keys:
            if key in self.connections:
                self.connections.pop(key).sqlite.close()

    def answer(
        self, key: int, opening: tuple | None, sql: str | None, cap: int, partial: bool, cell_chars: int, stored: bool,
        _counts: bool, plain: str,
    ) -> Reply:  # fmt: skip
        """Run one query of one connection, which is opened for it where it is not."""
        try:
            opened = key not in self.connections
            if opened:
                self.connections[key] = opened_connection(*opening)  # type: ignore[misc]  # it comes with the first
            connection = self.connections[key]
            self.allow(connection.limits["memory_mb"], opened)
            if sql is None:
                return catalog_reply(connection) if isinstance(connection, Connection) else connection.catalog()
            return connection.run(sql, cap, partial, cell_chars, stored, plain)
        except (sqlite3.Error, UnicodeError) as error:  # the file cannot be opened: no database, no right to read it
            return (*verdict(error, 0), None, None)
        except OSError as error:
            return "machine", str(error), None, None
        except MemoryError:
            return NO_MEMORY

    def allow(self, memory_mb: int, opened: bool) -> None:
        """Let the query add ``memory_mb`` to what the process holds; looked at again when that or the limit changed."""
        if opened or memory_mb != self.memory_mb:
            self.memory_mb = memory_mb
            limit_data(memory_mb * MB)


def opened_connection(uri: str, limits: dict[str, Any], live: bool) -> Connection | LiveConnection | Scratch:
    """A connection of a sandbox' kind; without a URI one to no database."""
    if not uri:
        return Scratch(limits)
    return LiveConnection(uri, limits) if live else Connection(uri, limits)


def limit_data(extra: int) -> None:
    """Let the process' private writable memory grow by ``extra`` bytes; mapped database files do not count."""
    try:
        with open("/proc/self/statm", "rb") as statm:
            used = int(statm.read().split()[5]) * resource.getpagesize()
    except OSError:
        used = 64 * MB  # no /proc: a bare worker holds a quarter of this
    resource.setrlimit(resource.RLIMIT_DATA, (used + extra, resource.RLIM_INFINITY))
