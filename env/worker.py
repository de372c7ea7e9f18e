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

from env.query import Connection, verdict
from env.wire import receive, send

SOCKET = 0
MB = 1 << 20


def main() -> None:
    """Serve until the parent closes the socket."""
    confine()
    _thread.stack_size(256 * 1024)
    _thread.start_new_thread(end_with_parent, ())
    send(SOCKET, b"ready")
    connections: dict[int, Connection] = {}
    while True:
        try:
            request = receive(SOCKET)
        except (EOFError, ConnectionError):
            os._exit(0)
        closing, opening, key, sql, cap = marshal.loads(request)
        for old in closing:
            connections.pop(old).sqlite.close()
        if key is None:
            continue
        answer(connections, opening, key, sql, cap)


def confine() -> None:
    """No core dumps, no byte written to any file, no working directory of the trainer's."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    os.chdir("/")


def end_with_parent() -> None:
    """Wait for the parent's end of the socket to close, also while a query runs, and end the process."""
    poll = select.poll()
    poll.register(SOCKET, 0)  # hang-up is reported without being asked for; requests are the main thread's
    poll.poll()
    os._exit(0)


def answer(connections: dict[int, Connection], opening: tuple | None, key: int, sql: str, cap: int) -> None:
    """Run one query and send (kind, …, recycle): after a lack of memory the process asks to be replaced."""
    reply: tuple = ("memory", "out of memory", None, None)
    try:
        if opening is not None:
            connections[key] = open_connection(*opening)
        reply = connections[key].run(sql, cap)
    except sqlite3.Error as error:  # the file cannot be opened: no database, no right to read it
        reply = (*verdict(error, 0), None, None)
    except MemoryError:
        pass
    recycle = reply[0] == "memory" and reply[1] == "out of memory"
    try:
        send(SOCKET, marshal.dumps((*reply, key in connections, recycle)))
    except MemoryError:
        send(SOCKET, marshal.dumps(("memory", "out of memory", None, None, False, True)))


def open_connection(uri: str, limits: dict[str, float]) -> Connection:
    """A connection; the process' data may then grow by ``limits["memory_mb"]`` from what it holds now."""
    connection = Connection(uri, limits)
    limit_data(int(limits["memory_mb"]) * MB)
    return connection


def limit_data(extra: int) -> None:
    """Let the process' private writable memory grow by ``extra`` bytes; mapped database files do not count."""
    try:
        with open("/proc/self/statm", "rb") as statm:
            used = int(statm.read().split()[5]) * resource.getpagesize()
    except OSError:
        used = 64 * MB  # no /proc: a bare worker holds a quarter of this
    resource.setrlimit(resource.RLIMIT_DATA, (used + extra, resource.RLIM_INFINITY))
