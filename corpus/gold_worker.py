"""The process that builds databases and runs untrusted gold SQL, so that a query can end no more than this process.

``corpus.workers`` starts it with a connection on a file descriptor; it takes Job objects from there and answers
with the messages below until the other end closes. An alarm ends the process itself when a query outlives its
time limit without ever polling it (one call of a function over a long string does that).
"""

import os
import signal
import sqlite3
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path

import sqale

from corpus.files import link_database
from corpus.gold import DatabaseFacts, GoldDatabase, Verdict
from corpus.source import DatabaseRecipe
from corpus.stability import Probes

GRACE = 2.0  # seconds over the time limit before the alarm


@dataclass(frozen=True)
class Job:
    """A database and some of its questions, as (number, gold SQL). ``facts``: count its tables and rows, too."""

    recipe: DatabaseRecipe
    path: Path
    questions: tuple[tuple[int, str], ...]
    seconds: float
    facts: bool = True


@dataclass(frozen=True)
class DatabaseReady:
    """The first answer: the figures of the database, if asked for, or why it cannot be used."""

    facts: DatabaseFacts | None
    error: str = ""


@dataclass(frozen=True)
class Judged:
    """The verdict on one question. ``final``: its stability is known too; a kept one is judged twice."""

    number: int
    verdict: Verdict
    final: bool


def answers(job: Job) -> Iterator[DatabaseReady | Judged]:
    """Build the database, then judge its questions one by one."""
    try:
        make_database(job.recipe, job.path)
        database = GoldDatabase(job.path)
        facts = database.facts() if job.facts else None
    except (sqlite3.Error, OSError) as error:
        yield DatabaseReady(None, str(error))
        return
    if not database.tables:
        yield DatabaseReady(None, "it has no tables")
        return
    yield DatabaseReady(facts)
    probes = Probes(database)
    for number, sql in job.questions:
        signal.setitimer(signal.ITIMER_REAL, job.seconds + GRACE)
        verdict, rows, touched = database.judge(sql, job.seconds)
        yield Judged(number, verdict, final=bool(verdict.dropped))
        if not verdict.dropped:
            signal.setitimer(signal.ITIMER_REAL, job.seconds + GRACE)
            unstable = probes.cause(sql, rows, touched, verdict.tables, job.seconds)
            yield Judged(number, replace(verdict, unstable=unstable), final=True)
    signal.setitimer(signal.ITIMER_REAL, 0)
    probes.close()
    database.close()


def make_database(recipe: DatabaseRecipe, path: Path) -> None:
    """Link an existing file, or build one from a SQaLe schema row, unless it is there: it exists whole or not."""
    if path.exists():
        return
    if isinstance(recipe, Path):
        link_database(recipe, path)
        return
    temporary = path.with_name(f".{path.name}.{os.getpid()}.new")
    temporary.unlink(missing_ok=True)
    sqale.build_database(recipe, temporary).close()
    temporary.replace(path)


def main() -> None:
    """Serve until the other end closes."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # the kernel ends the process: no Python code needs to run
    connection = Connection(int(sys.argv[1]))
    while True:
        try:
            job = connection.recv()
            for answer in answers(job):
                connection.send(answer)
            connection.send(None)
        except (EOFError, BrokenPipeError, KeyboardInterrupt):
            return
