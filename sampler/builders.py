"""The processes that build databases: a file brings expressions along, which SQLite evaluates while it copies rows.

A builder is a worker like those that run queries (``env.process``), but one that may write: the program is
``sampler.build_worker``. A build that takes too long or too much memory ends its process, and is an error of the file.
"""

import atexit
import marshal
import os
import threading
from collections.abc import Sequence
from pathlib import Path

import sqale_grpo.env
import sqale_grpo.sampler
from sqale_grpo.env.process import Worker
from sqale_grpo.env.wire import framed, send
from sqale_grpo.sampler.source import MissingExtension

BOOT = (
    "import sys\n"
    "places = {'sqale_grpo': [], 'sqale_grpo.env': [sys.argv[1]], 'sqale_grpo.sampler': [sys.argv[2]]}\n"
    "for name, path in places.items():\n"
    "    package = sys.modules[name] = type(sys)(name)\n"
    "    package.__path__ = path\n"
    "from sqale_grpo.sampler.build_worker import main\n"
    "main()"
)
BUILD_SECONDS = 60.0
COPIED_A_SECOND = 5 << 20  # bytes: a slow disk's pace, for files that must be copied although they are large
ATTEMPTS = 5  # a builder that the machine ends is no fault of the file, and without it there is no episode

Reply = tuple[str, str, int]


class Builders:
    """Idle builders of this process; one is started where there is none."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Start anew, in a forked child: the processes are the parent's."""
        for worker in getattr(self, "idle", []):
            worker.abandon()
        self.idle: list[Worker] = []
        self.lock = threading.Lock()

    def run(self, how: str, source: Path, tables: Sequence[str], out: Path) -> None:
        """``how``: "copy" or "overlay". Raises what ``build_database`` and ``overlay_database`` raise."""
        seconds = BUILD_SECONDS + source.stat().st_size / COPIED_A_SECOND
        message = framed(marshal.dumps((how, os.fsencode(source), tuple(tables), os.fsencode(out))))
        for attempt in range(ATTEMPTS):
            worker = self._take()
            try:
                worker.wait_ready()
                worker.set_timeout(seconds)
                send(worker.descriptor, message)
                reply = marshal.loads(worker.reader.receive())
            except BlockingIOError:
                worker.end()
                late = f"no database can be built from {source}: it took longer than {seconds:.0f} s"
                raise ValueError(late) from None
            except (EOFError, ConnectionError):
                worker.end()
                if attempt + 1 < ATTEMPTS:
                    continue
                code = worker.process.returncode
                raise OSError(f"the process that built a database from {source} ended (exit code {code})") from None
            except BaseException:
                worker.end()
                raise
            self._give_back(worker)
            raise_error(*reply)
            return

    def _take(self) -> Worker:
        with self.lock:
            if self.idle:
                return self.idle.pop()
        folders = (Path(module.__path__[0]) for module in (sqale_grpo.env, sqale_grpo.sampler))
        return Worker(["-c", BOOT, *map(str, folders)])

    def _give_back(self, worker: Worker) -> None:
        with self.lock:
            self.idle.append(worker)

    def close(self) -> None:
        """End the idle ones."""
        with self.lock:
            for worker in self.idle:
                worker.end()
            self.idle.clear()


def raise_error(kind: str, message: str, number: int) -> None:
    """What the builder met, as an exception of this process."""
    if kind == "missing":
        raise MissingExtension(message)
    if kind == "value":
        raise ValueError(message)
    if kind == "not_found":
        raise FileNotFoundError(message)
    if kind == "os":
        raise OSError(number, message)


builders = Builders()
atexit.register(builders.close)
os.register_at_fork(after_in_child=builders.forget)
