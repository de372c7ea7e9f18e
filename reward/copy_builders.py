"""The near end of the processes that build counter-databases (``reward.copy_worker``)."""

import atexit
import marshal
import os
import threading
from collections.abc import Sequence
from pathlib import Path

import sqale_grpo.env
import sqale_grpo.reward
from sqale_grpo.env.limits import SqlError
from sqale_grpo.env.process import Worker
from sqale_grpo.env.wire import framed, send
from sqale_grpo.reward.counter import CopyPlan
from sqale_grpo.reward.counter_build import NoCopy

# The packages are not imported whole: the process has the standard library alone.
BOOT = (
    "import sys\n"
    "places = {'sqale_grpo': [], 'sqale_grpo.env': [sys.argv[1]], 'sqale_grpo.reward': [sys.argv[2]]}\n"
    "for name, path in places.items():\n"
    "    package = sys.modules[name] = type(sys)(name)\n"
    "    package.__path__ = path\n"
    "from sqale_grpo.reward.copy_worker import main\n"
    "main()"
)
BUILD_SECONDS = 60.0  # ``prepare`` chooses no copy that takes nearly so long
ATTEMPTS = 2  # a process that the machine ends


class CopyBuilders:
    """Idle builders of this process; one is started where there is none. Any number of threads may ask."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Start anew, in a forked child: the processes are the parent's."""
        for worker in getattr(self, "idle", []):
            worker.abandon()
        self.idle: list[Worker] = []
        self.lock = threading.Lock()

    def build(self, source: str, plan: CopyPlan, seed: int, others: Sequence[str], target: Path) -> frozenset[str]:
        """Write a copy of the database at the URI ``source`` to ``target``; the tables of ``others`` that it lacks.

        Raises NoCopy where there is none, SqlError("machine") where that says nothing about the database.
        """
        parts = (tuple(plan.tables), dict(plan.values), plan.joined)
        message = framed(marshal.dumps((source, parts, seed, list(others), os.fsencode(target))))
        left_out, missing, failure = self._ask(message)
        if failure:
            raise SqlError("machine", f"counter-database {seed} could not be built: {failure}")
        if missing:
            raise NoCopy(missing)
        return frozenset(left_out)

    def _ask(self, message: bytes) -> tuple[list[str], str, str]:
        failure = ""
        for _ in range(ATTEMPTS):
            worker = self._take()
            try:
                worker.wait_ready()
                worker.set_timeout(BUILD_SECONDS)
                send(worker.descriptor, message)
                reply = marshal.loads(worker.reader.receive())
            except BlockingIOError:
                worker.end()
                return [], "", f"it took longer than {BUILD_SECONDS:.0f} s"
            except (EOFError, ConnectionError):
                worker.end()
                failure = f"the process that built it ended (exit code {worker.process.returncode})"
            except BaseException:
                worker.end()
                raise
            else:
                with self.lock:
                    self.idle.append(worker)
                return reply
        return [], "", failure

    def _take(self) -> Worker:
        with self.lock:
            if self.idle:
                return self.idle.pop()
        folders = (Path(module.__path__[0]) for module in (sqale_grpo.env, sqale_grpo.reward))
        return Worker(["-c", BOOT, *map(str, folders)])

    def close(self) -> None:
        """End the idle ones."""
        with self.lock:
            for worker in self.idle:
                worker.end()
            self.idle.clear()


copy_builders = CopyBuilders()
atexit.register(copy_builders.close)
os.register_at_fork(after_in_child=copy_builders.forget)
