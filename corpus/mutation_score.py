"""The mutation score of a corpus: how often a wrong query is taken for right here, with and without counter-databases.

Every question's gold query is mutated. A mutant is wrong if its result differs from the gold query's on the question's
own database or on one of twelve proving copies; a right rewrite of the gold query is never wrong. The figures are of
mutants that the choice of counter-databases did not see, and the proving copies are others than it tried, so the choice
is measured and not repeated; mutants that it saw are counted apart. A share of wrong queries that is proved is a lower
bound: a mutant that no copy tells from the gold counts as right.
"""

import signal
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

from sqale_grpo.corpus.counter_choice import catches, drawn_mutants, serious, usable_builder
from sqale_grpo.corpus.prepared import PreparedCorpus
from sqale_grpo.corpus.question import Question
from sqale_grpo.env.chance import rng
from sqale_grpo.env.connect import read_only_uri
from sqale_grpo.env.schema import SchemaGraph
from sqale_grpo.reward.constants import constants
from sqale_grpo.reward.counter_build import CopyBuilder, NoCopy
from sqale_grpo.reward.counter_run import COPY_STEPS, FULL_STEPS, Reference, StepConnection, reference
from sqale_grpo.reward.mutations import Mutant, mutants
from sqale_grpo.reward.rewrites import rewrites

PROVING = range(1_000, 1_012)  # seeds of the proving copies; a choice takes small ones
SECONDS = 60.0  # of one question's measurement, whose steps are bounded: after it the process ends
GROUP = 8  # questions of a database that a process gets at a time


@dataclass(frozen=True)
class Wrong:
    """A mutant that is proved wrong: its kind, whether it is taken for right on the database, and with the copies.

    ``seen``: the choice of the copies looked at it, or at one with its text.
    """

    kind: str
    before: bool
    after: bool
    seen: bool


@dataclass(frozen=True)
class QuestionScore:
    """What one question let pass: ``wrong`` holds mutants, and answers that read no table, such as ``SELECT 0``.

    ``refused``: rewrites that are right and fell on a copy, of ``rewrites``.
    """

    wrong: tuple[Wrong, ...] = ()
    rewrites: int = 0
    refused: tuple[str, ...] = ()


def measure(corpus: PreparedCorpus, indices: Sequence[int], workers: int) -> Iterator[tuple[int, QuestionScore | None]]:
    """(question number, score) in no certain order; None where a query ended its process."""
    left = {index: corpus.question(index) for index in indices}
    with ProcessPoolExecutor(workers) as pool:
        futures = [pool.submit(score_all, corpus.database(part[0][1].db_id), part) for part in portions(left)]
        for future in futures:
            with suppress(BrokenProcessPool):
                for index, score in future.result():
                    del left[index]
                    yield index, score
    for index, question in left.items():  # one of them ended its process, and with it the pool: each alone
        with ProcessPoolExecutor(1) as pool:
            try:
                yield from pool.submit(score_all, corpus.database(question.db_id), [(index, question)]).result()
            except BrokenProcessPool:
                yield index, None


def portions(questions: dict[int, Question]) -> Iterator[list[tuple[int, Question]]]:
    """The questions by database, a few at a time."""
    by_database: dict[str, list[tuple[int, Question]]] = {}
    for index, question in questions.items():
        by_database.setdefault(question.db_id, []).append((index, question))
    for group in by_database.values():
        yield from (group[start : start + GROUP] for start in range(0, len(group), GROUP))


def score_all(path: Path, questions: Iterable[tuple[int, Question]]) -> list[tuple[int, QuestionScore]]:
    """The scores of some questions of one database."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # the kernel ends the process: no Python code needs to run
    source = read_only_uri(path)
    scored = []
    with closing(sqlite3.connect(source, uri=True, isolation_level=None)) as bare:
        own = StepConnection(bare, FULL_STEPS)
        schema = own.schema()
        for index, question in questions:
            signal.setitimer(signal.ITIMER_REAL, SECONDS)
            scored.append((index, score(question, source, schema, own)))
    signal.setitimer(signal.ITIMER_REAL, 0)
    return scored


def score(question: Question, source: str, schema: SchemaGraph, own: StepConnection) -> QuestionScore:
    """What a question lets pass, and what its copies refuse."""
    sql = question.gold_sql
    gold = reference(sql, own)
    if gold is None:
        return QuestionScore()
    seen = drawn_mutants(sql, schema)
    known = {each.sql.casefold() for each in seen}
    fresh = [each for each in mutants(sql, schema, rng("score", sql)) if each.sql.casefold() not in known]
    asked = [*filter(serious, [*seen, *fresh]), *constants(gold.result.rows, len(gold.result.columns))]
    paid, wrong = judged(asked, gold, own)
    right, _ = judged(rewrites(sql, rng("score", sql)), gold, own)
    found = [Wrong(each.kind, False, False, each in seen) for each in wrong]
    try:
        builder = usable_builder(sql, source, question.gold_tables, schema)
    except NoCopy:
        return QuestionScore(tuple(found), len(right))
    proved = caught_on(sql, builder, PROVING if paid else (), paid)
    caught = caught_on(sql, builder, question.copies, paid)
    found += [Wrong(paid[index].kind, True, index not in caught, paid[index] in seen) for index in sorted(proved)]
    refused = caught_on(sql, builder, question.copies, right)
    return QuestionScore(tuple(found), len(right), tuple(right[index].sql for index in sorted(refused)))


def judged(queries: Sequence[Mutant], gold: Reference, own: StepConnection) -> tuple[list[Mutant], list[Mutant]]:
    """Those that are right on the question's own database, and those that are wrong; what does not run is neither."""
    right: list[Mutant] = []
    wrong: list[Mutant] = []
    for query in queries:
        result = own.result(query.sql)
        if result is not None:
            (right if gold.matches(result) else wrong).append(query)
    return right, wrong


def caught_on(sql: str, builder: CopyBuilder, seeds: Iterable[int], queries: Sequence[Mutant]) -> set[int]:
    """Which of the queries are wrong on some copy."""
    caught: set[int] = set()
    for seed in seeds:
        try:
            built = builder.build(":memory:", seed)
        except NoCopy:
            continue
        with closing(built) as copy:
            connection = StepConnection(copy.connection, COPY_STEPS)
            there = reference(sql, connection)
            if there is not None:
                caught |= {index for index, query in enumerate(queries) if catches(query, there, connection)}
    return caught


@dataclass(frozen=True)
class PaidShare:
    """Wrong mutants, and how many of them are paid in full before and after the copies."""

    wrong: int
    before: int
    after: int

    @classmethod
    def of(cls, mutants: Iterable[Wrong]) -> "PaidShare":
        """The counts over some mutants."""
        counted = Counter((each.before, each.after) for each in mutants)
        after = sum(count for (_, kept), count in counted.items() if kept)
        before = sum(count for (paid, _), count in counted.items() if paid)
        return cls(counted.total(), before, after)
