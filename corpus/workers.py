"""The near end of the gold workers: hand a database to a process, wait for its answers, go on when it dies."""

import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from queue import SimpleQueue

from sqale_grpo.corpus import reasons
from sqale_grpo.corpus.gold import DatabaseFacts, Verdict
from sqale_grpo.corpus.gold_worker import OUT_OF_MEMORY, DatabaseReady, Job, Judged, remove_unfinished

_ROOT = Path(__file__).resolve().parent.parent
# Without the package's front, which brings what reads and writes corpora along: half of a worker's start and memory.
BOOT = (
    "import sys\n"
    "import sqale_grpo\n"
    "package = sys.modules['sqale_grpo.corpus'] = type(sys)('sqale_grpo.corpus')\n"
    "package.__path__ = [sys.argv[2]]\n"
    "from sqale_grpo.corpus.gold_worker import main\n"
    "main()"
)


@dataclass(frozen=True)
class Result:
    """What came of one job: the figures of the database or its error, and a verdict a question by number."""

    facts: DatabaseFacts | None
    error: str
    verdicts: dict[int, Verdict]


class WorkerStopped(Exception):
    """The worker was stopped while it had work."""


def check_all(jobs: Iterable[tuple[str, Job]], workers: int) -> Iterator[tuple[str, Result]]:
    """Run (db_id, job) pairs on ``workers`` processes; yields (db_id, result) as they are done.

    Jobs are drawn only as fast as they are run, so they may come from a stream that does not fit into memory.
    """
    pool = [GoldWorker() for _ in range(workers)]
    idle: SimpleQueue[GoldWorker] = SimpleQueue()
    for worker in pool:
        idle.put(worker)

    def check(job: Job) -> Result:
        worker = idle.get()
        try:
            return worker.check(job)
        finally:
            idle.put(worker)

    threads = ThreadPoolExecutor(workers)
    running: dict[Future[Result], str] = {}
    try:
        for db_id, job in jobs:
            running[threads.submit(check, job)] = db_id
            if len(running) > workers:  # one more than can run, so that nobody waits for this thread
                yield from _finished(running)
        while running:
            yield from _finished(running)
    finally:
        for worker in pool:
            worker.stop()
        threads.shutdown(cancel_futures=True)
        for worker in pool:
            worker.close()


def _finished(running: dict[Future[Result], str]) -> Iterator[tuple[str, Result]]:
    for future in wait(running, return_when=FIRST_COMPLETED).done:
        yield running.pop(future), future.result()


class GoldWorker:
    """One worker process, started when first needed and again after its death. For one thread, except for ``stop``."""

    def __init__(self) -> None:
        self._process: subprocess.Popen | None = None
        self._connection: Connection | None = None
        self._exit_status = 0
        self._stopped = False

    def stop(self) -> None:
        """End the process from another thread; a ``check`` under way raises WorkerStopped."""
        self._stopped = True
        if self._process is not None:
            self._process.kill()

    def close(self) -> None:
        """End the process. Safe to call twice."""
        if self._process is not None and self._connection is not None:
            self._connection.close()
            self._process.kill()
            self._exit_status = self._process.wait()
            self._process = None

    def check(self, job: Job) -> Result:
        """Build the database of ``job`` and judge its questions, whatever they do to the process."""
        facts, error, verdicts = None, "", {}
        pending = dict(job.questions)
        while pending and not error:
            started = False
            for answer in self._answers(replace(job, questions=tuple(pending.items()))):
                if isinstance(answer, DatabaseReady):
                    started, error = True, answer.error
                    facts = answer.facts or facts
                else:
                    verdicts[answer.number] = answer.verdict
                    if answer.final:
                        del pending[answer.number]
            if self._stopped:
                raise WorkerStopped
            if not started:
                remove_unfinished(job.path)
                return Result(None, "the process that built it crashed, or ran out of memory or time", {})
            if pending and not error:
                self._blame(pending, verdicts, job.seconds)
        return Result(facts, error, verdicts)

    def _blame(self, pending: dict[int, str], verdicts: dict[int, Verdict], seconds: float) -> None:
        """The process died at the first pending question. If only its stability was open, it is kept as stable."""
        number = next(iter(pending))
        del pending[number]
        if self._exit_status == -signal.SIGALRM:
            verdict = Verdict(reasons.TIMES_OUT, f"over {seconds:g} s, in one call that SQLite cannot interrupt")
        else:
            detail = "out of memory" if self._exit_status in (OUT_OF_MEMORY, -signal.SIGKILL) else "SQLite crashed"
            verdict = Verdict(reasons.FAILS, detail)
        verdicts.setdefault(number, verdict)

    def _answers(self, job: Job) -> Iterator[DatabaseReady | Judged]:
        """The worker's answers, until it is done or dies."""
        connection = self._running()
        with suppress(EOFError, BrokenPipeError, ConnectionResetError):
            connection.send(job)
            while (answer := connection.recv()) is not None:
                yield answer
            return
        self.close()

    def _running(self) -> Connection:
        if self._process is not None and self._process.poll() is None and self._connection is not None:
            return self._connection
        self.close()
        near, far = multiprocessing.Pipe()
        path = os.pathsep.join(filter(None, (str(_ROOT), os.environ.get("PYTHONPATH"))))
        self._process = subprocess.Popen(
            [sys.executable, "-c", BOOT, str(far.fileno()), str(Path(__file__).parent)],
            pass_fds=[far.fileno()],
            env={**os.environ, "PYTHONPATH": path},
            start_new_session=True,  # an interrupt from the keyboard is the near end's business
        )
        far.close()
        self._connection = near
        return near
