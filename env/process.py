"""One worker process as its parent holds it: how it starts, its socket, how it is ended."""

import marshal
import os
import signal
import socket
import struct
import subprocess
import sys
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from sqale_grpo.env.limits import Kind
from sqale_grpo.env.wire import Reader

OWN_SIGNALS = {signal.SIGSEGV, signal.SIGABRT, signal.SIGFPE, signal.SIGILL, signal.SIGSYS}
START_SECONDS = 60.0
LAST_WORDS_SECONDS = 1.0  # they come at once, except where the machine is busy or the process is stopped
END_SECONDS = 10.0

# The parent's package is not imported whole: the worker needs a few small files of it, and must not pay for the rest.
BOOT = (
    "import sys\n"
    "for name, path in (('sqale_grpo', []), ('sqale_grpo.env', [sys.argv[1]])):\n"
    "    package = sys.modules[name] = type(sys)(name)\n"
    "    package.__path__ = path\n"
    "from sqale_grpo.env.worker import main\n"
    "main()"
)
# Enough to find the SQLite library, and the time zone, which 'localtime' depends on.
KEEP = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "PATH", "SYSTEMROOT", "TZ", "TZDIR")


def boot_arguments() -> list[str]:
    """Python's arguments that make a process a worker: a program, and where it finds its modules."""
    return ["-c", BOOT, str(Path(__file__).parent)]


class Worker:
    """One process, its socket, and the keys of the connections it holds. Used by one thread at a time."""

    def __init__(self, arguments: Sequence[str] = ()) -> None:
        """``arguments``: Python's, of another program than a query's worker."""
        ours, theirs = socket.socketpair()
        for end in (ours, theirs):
            end.setblocking(True)  # whatever time-out the program around us sets for all its sockets
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-B", "-X", "utf8", *(arguments or boot_arguments())],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                env={"MALLOC_ARENA_MAX": "1"} | {name: os.environ[name] for name in KEEP if name in os.environ},
                cwd="/",
                start_new_session=True,  # Ctrl-C is the parent's to handle
            )
        self.socket = ours
        self.descriptor = ours.fileno()
        self.reader = Reader(self.descriptor)
        self.opened: OrderedDict[int, None] = OrderedDict()
        self.timeout = 0.0
        self.ready = False
        self.confinement: dict[str, str] = {}  # what the kernel forbids it, by layer

    def wait_ready(self) -> None:
        """Return once the process answers.

        Raises BrokenPipeError where something killed it meanwhile, RuntimeError where it does not start.
        """
        if self.ready:
            return
        self.set_timeout(START_SECONDS)
        try:
            self.confinement = marshal.loads(self.reader.receive())
        except (EOFError, OSError) as error:
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(1.0)  # its socket is closed: it is at its end, or hangs
            code = self.process.returncode
            self.end()
            if code is not None and code < 0:
                raise BrokenPipeError("the SQL worker process was killed while it started") from error
            raise RuntimeError(
                f"the SQL worker process did not start (exit code {code}): see its error output, "
                f"and check that {sys.executable} -I -S can import sqlite3"
            ) from error
        self.ready = True

    def set_timeout(self, seconds: float) -> None:
        """Time-out of reads, in the kernel: no second system call a read."""
        if seconds != self.timeout:
            whole = int(seconds)
            value = struct.pack("@ll", whole, int((seconds - whole) * 1e6))
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, value)
            self.timeout = seconds

    def last_words(self, most: int) -> tuple[list[Any], bool]:
        """Up to ``most`` answers that a process whose query hangs had ready and not sent; it ends itself on this.

        False beside them: it did not end in time, so there may be more.
        """
        found: list[Any] = []
        try:
            self.socket.shutdown(socket.SHUT_WR)
            self.set_timeout(LAST_WORDS_SECONDS)
            while len(found) < most:
                found.append(marshal.loads(self.reader.receive()))
        except EOFError:
            return found, True
        except OSError:
            return found, False
        return found, True

    def end(self) -> None:
        """Kill the process, whatever it does, and wait for its end; one that waits for a dead disk ends when it can."""
        self.process.kill()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(END_SECONDS)
        self.socket.close()

    def abandon(self) -> None:
        """Let go of it in a forked child, where it is the parent's process, not ours."""
        self.process.returncode = 0
        self.socket.close()


def death(code: int | None) -> tuple[Kind, str]:
    """Kind and message for a process that ended under a query.

    What a query does ends its process by a fault in it; a signal from outside is the machine's doing: the kernel kills
    with 9 for lack of memory, workers first, and a disk that cannot be read raises SIGBUS under a mapped file.
    """
    if code is None:
        return "machine", f"the query's worker process did not end {END_SECONDS:g} s after it was killed"
    if code < 0 and -code not in OWN_SIGNALS:
        return "machine", f"the query's worker process was killed (signal {-code})"
    return "other", f"the query ended its worker process (exit code {code})"
