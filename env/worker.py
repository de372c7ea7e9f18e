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

from env.query import Connection, verdict
from env.scratch import Scratch
from env.wire import receive, send

SOCKET = 0
MB = 1 << 20
NO_MEMORY = ("memory", "out of memory", None, None)


def main() -> None:
    """Serve until the parent closes the socket."""
    confine()
    _thread.stack_size(256 * 1024)
    _thread.start_new_thread(end_with_parent, ())
    send(SOCKET, b"ready")
    holder = Holder()
    while True:
        try:
            closing, opening, query = marshal.loads(receive(SOCKET))
        except (EOFError, ConnectionError):
            os._exit(0)
        holder.close(closing)
        if query is not None:
            holder.answer(opening, *query)


def confine() -> None:
    """No core dumps, no byte written to any file, not the trainer's working directory, first to go when memory ends."""
    with suppress(OSError), open("/proc/self/oom_score_adj", "w") as score:
        score.write("1000")
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    os.chdir("/")


def end_with_parent() -> None:
    """Wait for the parent's end of the socket to close, also while a query runs, and end the process."""
    poll = select.poll()
    poll.register(SOCKET, 0)  # hang-up is reported without being asked for; requests are the main thread's
    poll.poll()
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

    def answer(self, opening: tuple | None, key: int, sql: str, cap: int, partial: bool) -> None:
        """Run one query and send (kind, …, is the connection open, must the process be replaced)."""
        reply: tuple = NO_MEMORY
        try:
            if opening is not None:
                uri, limits = opening
                self.connections[key] = Connection(uri, limits) if uri else Scratch(limits)
            connection = self.connections[key]
            self.allow(connection.limits["memory_mb"], opening is not None)
            reply = connection.run(sql, cap, partial)
        except sqlite3.Error as error:  # the file cannot be opened: no database, no right to read it
            reply = (*verdict(error, 0), None, None)
        except MemoryError:
            pass
        try:
            message = marshal.dumps((*reply, key in self.connections, reply[:2] == NO_MEMORY[:2]))
        except MemoryError:
            message = marshal.dumps((*NO_MEMORY, False, True))
        send(SOCKET, message)

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
