"""The near end of the gold workers: hand a database to a process, wait for its answers, go on when it dies."""

import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path

from corpus import reasons
from corpus.gold import DatabaseFacts, Verdict
from corpus.gold_worker import DatabaseReady, Job, Judged

_ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Result:
    """What came of one database: its figures or its error, and a verdict a question by number."""

    facts: DatabaseFacts | None
    error: str
    verdicts: dict[int, Verdict]


class GoldWorker:
    """One worker process, started when first needed and again after each kill. For one thread at a time."""

    def __init__(self) -> None:
        self._process: subprocess.Popen | None = None
        self._connection: Connection | None = None
        self._exit_status = 0

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
        pending = dict.fromkeys(number for number, _ in job.questions)
        while True:
            started = job.recipe is None
            for answer in self._answers(job):
                if isinstance(answer, DatabaseReady):
                    started, error = True, answer.error
                    facts = answer.facts or facts
                elif isinstance(answer, Judged):
                    verdicts[answer.number] = answer.verdict
                    if answer.final:
                        del pending[answer.number]
            if error or not pending:
                return Result(facts, error, verdicts)
            if not started:
                return Result(None, "SQLite crashed or ran out of memory while it was built", {})
            number = next(iter(pending))  # the question that the process was at when it ended
            del pending[number]
            verdicts.setdefault(number, self._end_of(job))
            left = tuple(question for question in job.questions if question[0] in pending)
            if not left:
                return Result(facts, error, verdicts)
            job = replace(job, recipe=None, questions=left)

    def _end_of(self, job: Job) -> Verdict:
        if self._exit_status == -signal.SIGALRM:
            return Verdict(reasons.TIMES_OUT, f"over {job.seconds:g} s, in one call that SQLite cannot interrupt")
        return Verdict(reasons.FAILS, "SQLite crashed or ran out of memory")

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
            [sys.executable, "-c", "from corpus.gold_worker import main; main()", str(far.fileno())],
            pass_fds=[far.fileno()],
            env={**os.environ, "PYTHONPATH": path},
            start_new_session=True,  # an interrupt from the keyboard is the near end's business
        )
        far.close()
        self._connection = near
        return near
