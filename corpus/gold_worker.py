"""The process that builds databases and runs untrusted gold SQL, so that a query can end no more than this process.

``corpus.workers`` starts it with a connection on a file descriptor; it takes Job objects from there and answers
with the messages below until the other end closes. An alarm ends the process itself when a query outlives its
time limit without ever polling it (one call of a function over a long string does that).
"""

import errno
import os
import re
import resource
import signal
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from glob import escape
from multiprocessing.connection import Connection
from pathlib import Path

from sqale_grpo.corpus.counter_choice import ENDED, CopyChooser
from sqale_grpo.corpus.files import copy_database
from sqale_grpo.corpus.gold import Choice, DatabaseFacts, GoldDatabase, Verdict
from sqale_grpo.corpus.question import DatabaseRecipe
from sqale_grpo.corpus.stability import Probes
from sqale_grpo.env.confinement import confine
from sqale_grpo.env.limits import Limits
from sqale_grpo.env.pool import GRACE_SECONDS

PROBE_GRACE_SECONDS = 2.0  # over the time limit of all probes of a gold, for what they compare
OUT_OF_MEMORY = 3  # exit status
CHOICE_SECONDS = 60.0  # for the copies of one question, whose steps are bounded: after it the process ends
BUILD_SECONDS = 300.0  # the largest published schema takes a few
BUILD_BYTES = 4 << 30  # of a built file; statements of a schema could fill a disk in those seconds
# What may begin a statement of a SQaLe schema, after comments: nothing that opens another file or changes a setting.
_COMMENTS = re.compile(r"(?:\s|--[^\n]*(?:\n|\Z)|/\*.*?(?:\*/|\Z))*", re.DOTALL)
_DDL = ("CREATE", "ALTER", "DROP", "INSERT", "REPLACE", "UPDATE", "DELETE")


@dataclass(frozen=True)
class Job:
    """A database and some of its questions, as (number, gold SQL). ``facts``: count its tables and rows, too.

    A gold may take ``steps`` and ``seconds``, and return ``max_rows`` rows. Building the database may take
    ``build_seconds``. ``copies``: how many counter-databases to choose for each question that is kept.
    """

    recipe: DatabaseRecipe
    path: Path
    questions: tuple[tuple[int, str], ...]
    seconds: float
    max_rows: int = Limits.rows
    build_seconds: float = BUILD_SECONDS
    facts: bool = True
    steps: int = Limits.steps
    copies: int = 0


@dataclass(frozen=True)
class DatabaseReady:
    """The first answer: the figures of the database, if asked for, or why it cannot be used."""

    facts: DatabaseFacts | None
    error: str = ""


@dataclass(frozen=True)
class Judged:
    """The verdict on one question; ``final``: stability and copies are known too. A kept one comes before that, too."""

    number: int
    verdict: Verdict
    final: bool


def answers(job: Job) -> Iterator[DatabaseReady | Judged]:
    """Build the database, then judge its questions one by one."""
    try:
        make_database(job.recipe, job.path, job.build_seconds)
        database = GoldDatabase(job.path, job.steps)
        facts = database.facts() if job.facts else None
    except (sqlite3.Error, OSError, ValueError, RecursionError) as error:
        yield DatabaseReady(None, str(error))
        return
    if not database.tables:
        yield DatabaseReady(None, "it has no tables")
        return
    yield DatabaseReady(facts)
    probes, chooser = Probes(database), CopyChooser(job.path)
    for number, sql in job.questions:
        signal.setitimer(signal.ITIMER_REAL, job.seconds + GRACE_SECONDS)
        judgement = database.judge(sql, job.seconds, job.max_rows)
        verdict = judgement.verdict
        if job.copies and not verdict.dropped:
            verdict = replace(verdict, choice=Choice(missing=ENDED))  # until it is made
        yield Judged(number, verdict, final=bool(verdict.dropped))
        if not verdict.dropped:
            signal.setitimer(signal.ITIMER_REAL, job.seconds + PROBE_GRACE_SECONDS)
            verdict = replace(verdict, unstable=probes.cause(sql, judgement, job.seconds))
            if verdict.unstable:
                verdict = replace(verdict, choice=Choice())
            choosing = job.copies > 0 and not verdict.unstable
            yield Judged(number, verdict, final=not choosing)
            if choosing:
                signal.setitimer(signal.ITIMER_REAL, CHOICE_SECONDS)
                choice = chooser.choose(sql, verdict.tables, job.copies)
                yield Judged(number, replace(verdict, choice=choice), final=True)
    signal.setitimer(signal.ITIMER_REAL, 0)
    chooser.close()
    probes.close()
    database.close()


def make_database(recipe: DatabaseRecipe, path: Path, seconds: float) -> None:
    """Copy an existing file, or build one from a SQaLe schema row, unless it is there: it exists whole or not.

    A build that takes longer than ``seconds`` ends the process.
    """
    if path.exists():
        return
    if isinstance(recipe, Path):
        copy_database(recipe, path)
        return
    import sqale  # for SQaLe alone: it takes a third of a worker's start

    temporary = path.with_name(f".{path.name}.{os.getpid()}.new")
    remove_unfinished(path)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        with bounded_files(BUILD_BYTES):
            row = {**recipe, "full_schema": harmless_ddl(recipe["full_schema"] or "")}
            sqale.build_database(row, temporary).close()
        temporary.replace(path)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        remove_unfinished(path)


@contextmanager
def bounded_files(size: int) -> Iterator[None]:
    """Let no file grow over ``size`` bytes; OSError where one would have. The library takes SQLite's error for its own.

    Only in the main thread, since the system says so by a signal.
    """
    passed: list[int] = []
    before = signal.signal(signal.SIGXFSZ, lambda number, _: passed.append(number))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)
    if passed:
        raise OSError(errno.EFBIG, f"its file would pass {size / 2**20:,.0f} MB")


def remove_unfinished(path: Path) -> None:
    """Remove what builds of ``path`` left that did not come to their end, in this process or in one that is gone."""
    for leftover in path.parent.glob(f".{escape(path.name)}.*.new*"):
        leftover.unlink(missing_ok=True)


def harmless_ddl(schema: str) -> str:
    """The schema without statements such as ATTACH, which would reach other files of this machine.

    The library runs a schema as it comes, cut at its semicolons. Without such a statement it is left word for word.
    """
    statements = schema.split(";")
    kept = [statement for statement in statements if _is_harmless(statement)]
    return schema if len(kept) == len(statements) else ";".join(kept)


def _is_harmless(statement: str) -> bool:
    bare = statement[_COMMENTS.match(statement).end() :]  # type: ignore[union-attr]  # it matches nothing, too
    return not bare or bare.upper().startswith(_DDL)


def main() -> None:
    """Serve until the other end closes."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # the kernel ends the process: no Python code needs to run
    confine(writes=True)
    connection = Connection(int(sys.argv[1]))
    while True:
        try:
            job = connection.recv()
            for answer in answers(job):
                connection.send(answer)
            connection.send(None)
        except (EOFError, BrokenPipeError, KeyboardInterrupt):
            return
        except MemoryError:  # the heap may stay large, and the next gold have more than the environment allows
            os._exit(OUT_OF_MEMORY)
