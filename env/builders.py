"""Both ends of the processes that build databases: a file brings expressions along, which SQLite evaluates meanwhile.

A builder is a worker like those that run queries (``env.process``), except that it may write, and that it answers
one request at a time. A request that takes too long, or too much memory, ends its process.
"""

import atexit
import marshal
import os
import resource
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from sqale_grpo.env.confinement import confine
from sqale_grpo.env.process import Worker
from sqale_grpo.env.wire import Reader, framed, send
from sqale_grpo.env.worker import MB, SOCKET, limit_data

MEMORY_MB = 512  # what a build may add to the process' data
# The packages are not imported whole: the process has the standard library alone.
BOOT = (
    "import sys\n"
    "for name, path in zip(('sqale_grpo', *sys.argv[1::2]), ([], *([path] for path in sys.argv[2::2]))):\n"
    "    package = sys.modules[name] = type(sys)(name)\n"
    "    package.__path__ = path\n"
    "from {program} import main\n"
    "main()"
)


class Builders:
    """Idle builders of this process; one is started where there is none. Any number of threads may ask."""

    def __init__(self, program: str) -> None:
        """``program``: the module whose ``main`` serves, as ``sqale_grpo.PACKAGE.MODULE``."""
        self.program = program
        self.forget()
        atexit.register(self.close)
        os.register_at_fork(after_in_child=self.forget)

    def forget(self) -> None:
        """Start anew, in a forked child: the processes are the parent's."""
        for worker in getattr(self, "idle", []):
            worker.abandon()
        self.idle: list[Worker] = []
        self.lock = threading.Lock()

    def ask(self, request: tuple, seconds: float, attempts: int) -> Any:
        """The reply to a request, which says nothing of the machine.

        Raises TimeoutError where it takes longer than ``seconds``, EOFError where the process ended under it, as often
        as ``attempts``; RuntimeError where none starts.
        """
        message, code = framed(marshal.dumps(request)), None
        for _ in range(attempts):
            worker = self._take()
            try:
                worker.wait_ready()
                worker.set_timeout(seconds)
                send(worker.descriptor, message)
                reply = marshal.loads(worker.reader.receive())
            except BlockingIOError:
                worker.end()
                raise TimeoutError(f"it took longer than {seconds:.0f} s") from None
            except (EOFError, ConnectionError):
                worker.end()
                code = worker.process.returncode
            except BaseException:
                worker.end()
                raise
            else:
                with self.lock:
                    self.idle.append(worker)
                return reply
        raise EOFError(f"the process that built it ended (exit code {code})")

    def _take(self) -> Worker:
        with self.lock:
            if self.idle:
                return self.idle.pop()
        rooms, place = ("env", self.program.split(".")[1]), Path(__file__).parents[1]
        folders = [word for room in rooms for word in (f"sqale_grpo.{room}", str(place / room))]
        return Worker(["-c", BOOT.format(program=self.program), *folders])

    def close(self) -> None:
        """End the idle ones."""
        with self.lock:
            for worker in self.idle:
                worker.end()
            self.idle.clear()


def serve(answer: Callable[..., tuple]) -> None:
    """In the process: answer requests over the socket that is its standard input, until the parent closes it."""
    with suppress(OSError), open("/proc/self/oom_score_adj", "w") as score:
        score.write("500")
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    limit_data(MEMORY_MB * MB)
    reader = Reader(SOCKET)
    send(SOCKET, framed(marshal.dumps(confine(writes=True))))
    with suppress(EOFError, ConnectionError):
        while True:
            send(SOCKET, framed(marshal.dumps(answer(*marshal.loads(reader.receive())))))
