"""The counter-databases of a group at scoring: an answer that is right on the episode's database runs again here.

A copy holds the episode's tables with the gold tables changed (``reward.counter``), so what the policy saw of the
schema is there. Copies are built when the first answer needs them, and gone with the group. An answer that reads a
table which a copy cannot hold (a very large one, a virtual one) is not judged by it, nor one that runs out of steps or
memory there: neither says that it is wrong. Where the machine fails, nothing can be said: SqlError("machine").
"""

import itertools
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sqale_grpo.env.connect import read_only_uri
from sqale_grpo.env.sandbox import Sandbox, SqlError
from sqale_grpo.env.text import fold_name
from sqale_grpo.reward.compare import compare
from sqale_grpo.reward.copy_builders import build_copy
from sqale_grpo.reward.counter_build import NoCopy
from sqale_grpo.reward.counter_plan import make_plan
from sqale_grpo.reward.gold import Gold, GoldError, run_gold

UNJUDGED = ("timeout", "memory")
_numbers = itertools.count()


@dataclass(frozen=True)
class Fall:
    """An answer was right on the question's database and is wrong on copy ``seed``; ``message``: the two results."""

    seed: int
    f1: float
    message: str


@dataclass
class OpenCopy:
    """A copy on disk, its gold result, and the episode's tables that it lacks (folded)."""

    seed: int
    sandbox: Sandbox
    gold: Gold
    left_out: frozenset[str]


class Copies:
    """The counter-databases of one question over one episode's database. Any number of threads may ask."""

    def __init__(
        self, gold_sql: str, gold_tables: Sequence[str], seeds: Sequence[int], episode: Sandbox, folder: Path
    ) -> None:
        """``seeds``: the question's copies. ``episode``: the database that they are made of, its limits and workers.

        ``folder``: where their files go while they are open.
        """
        self.gold_sql, self.gold_tables, self.seeds = gold_sql, tuple(gold_tables), tuple(seeds)
        self.episode, self.folder = episode, folder
        self._lock = threading.Lock()
        self._opened: list[OpenCopy | None] = []  # of the first seeds; None: there is no copy

    def fall(self, prediction: str, tables: frozenset[str]) -> Fall | None:
        """Where an answer that is right on the episode's database is wrong; None: on no copy.

        ``tables``: what it read there. Raises SqlError("machine").
        """
        read = set(map(fold_name, tables))
        for place in range(len(self.seeds)):
            copy = self._copy(place)
            if copy is not None and not read & copy.left_out:
                found = judge_on(prediction, copy)
                if found is not None:
                    return found
        return None

    def _copy(self, place: int) -> OpenCopy | None:
        with self._lock:
            while len(self._opened) <= place:
                self._opened.append(self._open(self.seeds[len(self._opened)]))
            return self._opened[place]

    def _open(self, seed: int) -> OpenCopy | None:
        """Build a copy and run the gold query; None where that cannot be done here, though ``prepare`` could."""
        path, schema = self.folder / f"copy-{next(_numbers)}.sqlite", self.episode.schema
        plan = make_plan(self.gold_sql, self.gold_tables, schema)
        gold_tables = set(map(fold_name, self.gold_tables))
        others = [table for table in schema.tables if fold_name(table) not in gold_tables]
        limits, pool = self.episode.limits, self.episode.pool
        try:
            left_out = build_copy(read_only_uri(self.episode.database), plan, seed, others, path)
            gold = run_gold(self.gold_sql, path, limits, pool, immutable=True)
            sandbox = Sandbox(path, limits, pool, immutable=True)
        except BaseException as error:
            path.unlink(missing_ok=True)
            if isinstance(error, GoldError) and error.error.kind in ("machine", *UNJUDGED):
                # The gold query was quick on this copy when it was chosen: a time-out now is the machine's doing, too.
                text = f"the gold query did not run on counter-database {seed}: {error.error.message}"
                raise SqlError("machine", text) from error
            if isinstance(error, NoCopy | GoldError):
                return None
            raise
        return OpenCopy(seed, sandbox, gold, frozenset(map(fold_name, left_out)))

    def close(self) -> None:
        """Remove the copies. Closing twice does nothing."""
        with self._lock:
            opened, self._opened = self._opened, []
        for copy in opened:
            if copy is not None:
                copy.sandbox.close()
                copy.sandbox.database.unlink(missing_ok=True)

    def __enter__(self) -> "Copies":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def judge_on(prediction: str, copy: OpenCopy) -> Fall | None:
    """How an answer falls on one copy; None where it is right, or cannot be judged."""
    try:
        result = copy.sandbox.execute(prediction)
    except SqlError as error:
        if error.kind == "machine":
            raise
        return None if error.kind in UNJUDGED else Fall(copy.seed, 0.0, f"does not run there ({error})")
    compared = compare(result, copy.gold.result, copy.gold.ordered, copy.gold.ties)
    if compared.equivalent:
        return None
    return Fall(copy.seed, compared.f1, str(compared.difference))
