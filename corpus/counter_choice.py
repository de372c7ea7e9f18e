"""Which counter-databases a question gets: seeds of changed copies of its gold tables that tell wrong queries from it.

At preparation the gold query is mutated, and the mutants that are right on the question's own database are run on
candidate copies. The copy is kept on which most of them are wrong, then the one that catches most of the rest. A copy
counts only where the gold query runs, has rows, and gives the same whatever the order in which rows are stored and ties
broken. Nothing here depends on the clock: the same corpus gives the same seeds on every machine.
"""

import resource
import sqlite3
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path

from sqale_grpo.corpus.gold import Choice
from sqale_grpo.corpus.stability import rewritten, tie_variants
from sqale_grpo.env.chance import rng
from sqale_grpo.env.connect import read_only_uri
from sqale_grpo.env.limits import Limits
from sqale_grpo.env.schema import SchemaGraph
from sqale_grpo.env.worker import MB, limit_data
from sqale_grpo.reward.constants import CONSTANT, constants
from sqale_grpo.reward.counter_build import CopyBuilder, NoCopy
from sqale_grpo.reward.counter_plan import make_plan
from sqale_grpo.reward.counter_run import COPY_STEPS, FULL_STEPS, Reference, StepConnection, reference
from sqale_grpo.reward.mutations import SLIGHT, Mutant, mutants

CANDIDATES = 10
DRAWS = 2  # mutants of a kind
MOST = 2  # copies of a question
ROWID_NAMES = ("rowid", "_rowid_", "oid")  # a copy numbers its rows anew

# Why a question has fewer copies than asked for.
NO_COPY = "no copy can be made"
NOT_STABLE = "gold slow, unstable or empty on every copy"
ENDED = "their choice took too long or too much memory"


class CopyChooser:
    """Chooses the counter-databases of one database's questions, on a connection that is opened when first needed."""

    def __init__(self, path: Path) -> None:
        self.source = read_only_uri(path)
        self._own: StepConnection | None = None

    def choose(self, sql: str, tables: tuple[str, ...], most: int) -> Choice:
        """Up to ``most`` copies for a stable gold query over ``tables``."""
        if self._own is None:
            self._own = StepConnection(sqlite3.connect(self.source, uri=True, isolation_level=None), FULL_STEPS)
            self._schema = self._own.schema()
        limit_data(Limits.memory_mb * MB)
        try:
            return choose_copies(sql, self.source, tables, self._schema, self._own, most)
        except MemoryError:
            return Choice(missing=ENDED)
        finally:
            resource.setrlimit(resource.RLIMIT_DATA, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))

    def close(self) -> None:
        """Close the connection."""
        if self._own is not None:
            self._own.sqlite.close()


@dataclass
class Candidate:
    """A copy that was tried: which of the surviving mutants it catches."""

    seed: int
    caught: set[int] = field(default_factory=set)
    moved: bool = False  # its gold result differs from the question's own


def choose_copies(
    sql: str, source: str, tables: tuple[str, ...], schema: SchemaGraph, own: StepConnection, most: int
) -> Choice:
    """Choose up to ``most`` copies for a gold query over ``tables``.

    ``source``: URI of the database, ``own``: a connection to it. The mutants are drawn by the query's text.
    """
    here = own.result(sql)
    if here is None:
        return Choice(missing=NOT_STABLE)
    gold = Reference.of(sql, own.rows, here)
    drawn = [*drawn_mutants(sql, schema), *constants(here.rows, len(here.columns))]
    right, wrong = split(drawn, gold, own)
    try:
        builder = usable_builder(sql, source, tables, schema)
    except NoCopy:
        return Choice(missing=NO_COPY)
    tried = try_candidates(sql, builder, gold, right)
    if not tried:
        return Choice(missing=NOT_STABLE)
    chosen = best(sql, builder, tried, most)
    proved = {index for each in tried for index in each.caught if serious(right[index])}
    paid, left = [len(proved)], set(proved)
    for each in chosen:
        left -= each.caught
        paid.append(len(left))
    missing = "" if len(chosen) == most else NOT_STABLE
    return Choice(tuple(each.seed for each in chosen), missing, wrong + len(proved), tuple(paid))


def drawn_mutants(sql: str, schema: SchemaGraph) -> list[Mutant]:
    """The mutants that a choice looks at: two draws of each kind, each text once."""
    drawn = [each for draw in range(DRAWS) for each in mutants(sql, schema, rng("mutants", sql, draw))]
    return list({each.sql.casefold(): each for each in drawn}.values())


def usable_builder(sql: str, source: str, tables: tuple[str, ...], schema: SchemaGraph) -> CopyBuilder:
    """The builder of the question's copies. Raises NoCopy, also for a query that looks at row numbers."""
    words = sql.lower()
    if any(name in words for name in ROWID_NAMES):
        raise NoCopy("the query may read row numbers")
    return CopyBuilder(source, make_plan(sql, tables, schema))


def split(drawn: Sequence[Mutant], gold: Reference, own: StepConnection) -> tuple[list[Mutant], int]:
    """The mutants that are right on the question's own database, and how many serious ones are wrong there."""
    right: list[Mutant] = []
    wrong = 0
    for mutant in drawn:
        result = own.result(mutant.sql)
        if result is not None and gold.matches(result):
            right.append(mutant)
        elif result is not None:
            wrong += serious(mutant)
    return right, wrong


def serious(mutant: Mutant) -> bool:
    """Is it a mistake beyond doubt, if its result differs?"""
    return mutant.kind not in SLIGHT and mutant.kind != CONSTANT


def try_candidates(sql: str, builder: CopyBuilder, gold: Reference, right: Sequence[Mutant]) -> list[Candidate]:
    """Candidates on which the gold query is stable and has rows, until one catches all mutants that are left."""
    tried: list[Candidate] = []
    for seed in range(CANDIDATES):
        try:
            copy = builder.build(":memory:", seed)
        except NoCopy:
            continue
        with closing(copy):
            connection = StepConnection(copy.connection, COPY_STEPS)
            there = reference(sql, connection)
            if there is None or not there.result.rows:
                continue
            caught = {index for index, mutant in enumerate(right) if catches(mutant, there, connection)}
            tried.append(Candidate(seed, caught, not gold.matches(there.result)))
        if len(caught) == len(right) and len(tried) >= MOST:
            break
    return tried


def catches(mutant: Mutant, there: Reference, connection: StepConnection) -> bool:
    """Is the mutant wrong on this copy? One that does not run there proves nothing."""
    result = connection.result(mutant.sql)
    return result is not None and not there.matches(result)


def best(sql: str, builder: CopyBuilder, tried: Sequence[Candidate], most: int) -> list[Candidate]:
    """Up to ``most`` candidates: each catches most of what those before it have left, and stands a closer look."""
    chosen: list[Candidate] = []
    left = list(tried)
    caught: set[int] = set()
    while left and len(chosen) < most:
        found = max(left, key=lambda each: (len(each.caught - caught), each.moved, len(each.caught), -each.seed))
        left.remove(found)
        if is_steady(sql, builder, found.seed):
            chosen.append(found)
            caught |= found.caught
    return chosen


def is_steady(sql: str, builder: CopyBuilder, seed: int) -> bool:
    """Does the gold query give the same on this copy with the rows stored last to first, and ties broken both ways?"""
    with ExitStack() as stack:
        try:
            copies = [stack.enter_context(closing(builder.build(":memory:", seed, (), back))) for back in (False, True)]
        except NoCopy:
            return False
        first, second = (StepConnection(copy.connection, COPY_STEPS) for copy in copies)
        gold, turned = reference(sql, first), reference(sql, second)
        if gold is None or turned is None or not gold.matches(turned.result):
            return False
        variants = tie_variants(sql, len(gold.result.columns))
        if variants is None:
            return True
        same = first.result(rewritten(sql))
        if same is None or not gold.matches(same):
            return True  # sqlglot writes another meaning, so its variants prove nothing
        results = [first.result(variant) for variant in variants]
        return all(result is not None and gold.matches(result) for result in results)
