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

from sqale_grpo.env.query import Connection, verdict
from sqale_grpo.env.scratch import Scratch
from sqale_grpo.env.wire import Reader, framed, send

SOCKET = 0
MB = 1 << 20
# Where the system cannot tell that only the parent's side is closed, answers are not held back.
HANG_UP = getattr(select, "POLLRDHUP", 0)
TOGETHER_SECONDS = 0.001 if HANG_UP else 0.0
NO_MEMORY = ("memory", "out of memory", None, None)


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
    confine()
    outbox, holder, reader = Outbox(), Holder(), Reader(SOCKET)
    _thread.stack_size(256 * 1024)
    _thread.start_new_thread(end_with_parent, (outbox,))
    send(SOCKET, framed(b"ready"))
    try:
        while True:
            serve(holder, outbox, *marshal.loads(reader.receive()))
    except (EOFError, ConnectionError):
        os._exit(0)


def serve(
    holder: "Holder", outbox: Outbox, closing: tuple[int, ...], key: int, opening: tuple | None, queries: list[tuple]
) -> None:
    """One message: close connections, then run queries on one; after a lack of memory the rest is left unanswered."""
    holder.close(closing)
    outbox.sent = monotonic()
    for query in queries:
        answer, last = holder.answer(key, opening, *query)
        outbox.add(answer)
        if last:
            break
    outbox.flush()


def confine() -> None:
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
        self.connections: dict[int, Connection | Scratch] = {}
        self.memory_mb = 0

    def close(self, keys: tuple[int, ...]) -> None:
        """Close connections; one that could not be opened is not there."""
        for key in keys:
            if key in self.connections:
                self.connections.pop(key).sqlite.close()

    def answer(self, key: int, opening: tuple | None, sql: str, cap: int, partial: bool) -> tuple[bytes, bool]:
        """Run one query: (kind, …, is the connection open, must the process be replaced) marshalled, and the latter."""
        reply: tuple = NO_MEMORY
        try:
            opened = key not in self.connections
            if opened:
                uri, limits = opening or ("", {})
                self.connections[key] = Connection(uri, limits) if uri else Scratch(limits)
            connection = self.connections[key]
            self.allow(connection.limits["memory_mb"], opened)
            reply = connection.run(sql, cap, partial)
        except sqlite3.Error as error:  # the file cannot be opened: no database, no right to read it
            reply = (*verdict(error, 0), None, None)
        except MemoryError:
            pass
        recycle = reply[:2] == NO_MEMORY[:2]
        try:
            return marshal.dumps((*reply, key in self.connections, recycle)), recycle
        except MemoryError:
            return marshal.dumps((*NO_MEMORY, False, True)), True

    def allow(self, memory_mb: int, opened: bool) -> None:
        """Let the query add ``memory_mb`` to what the process holds; looked at again when that or the limit changed."""
        if opened or memory_mb != self.memory_mb:
            self.memory_mb = memory_mb
            limit_data(memory_mb * MB)


def limit_data(extra: int) -> None:
    """Let the process' private writable memory grow by ``extra`` bytes; mapped database files do not count."""
    try:
        with open("/proc/self/statm", "rb") as statm:
            used = int(statm.read().split()[5]) * resource.getpagesize()
    except OSError:
        used = 64 * MB  # no /proc: a bare worker holds a quarter of this
    resource.setrlimit(resource.RLIMIT_DATA, (used + extra, resource.RLIM_INFINITY))
