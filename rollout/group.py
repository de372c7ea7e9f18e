"""One question's database and episodes: built once, shared by all candidates of the group."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from sqale_grpo.corpus import PreparedCorpus, Question
from sqale_grpo.env.chance import rng
from sqale_grpo.env.episode import Episode, EpisodeLimits
from sqale_grpo.env.prompts import Prompts
from sqale_grpo.env.sandbox import Limits, Sandbox, WorkerPool
from sqale_grpo.env.schema import SchemaGraph
from sqale_grpo.sampler import EpisodeDatabase, open_episode_database, select_tables


@dataclass(frozen=True)
class World:
    """What a group's episodes share: the question, the tables that exist, their database and its sandbox."""

    question: Question
    tables: tuple[str, ...]
    database: EpisodeDatabase
    sandbox: Sandbox

    def episode(self, limits: EpisodeLimits, prompts: Prompts, gated: bool, evidence: bool) -> Episode:
        """A fresh episode over this database."""
        shown = self.question.evidence if evidence else ""
        return Episode(self.question.text, self.sandbox, limits, gated=gated, evidence=shown, prompts=prompts)


@contextmanager
def open_world(
    corpus: PreparedCorpus,
    index: int,
    draw: tuple[int, int],
    mode: str,
    sizes: tuple[int, int],
    limits: Limits,
    workers: WorkerPool,
) -> Iterator[World]:
    """Question ``index`` with the phrasing and the tables that the draw (seed, update) gives it.

    Its queries run in ``workers``. ``mode`` is ``sampled``, ``gold``, ``distractors:N`` or ``full``; ``sizes`` are the
    smallest and largest target of ``sampled``.
    """
    plain = corpus.question(index)
    question = corpus.question(index, rng("phrasing", *draw, plain.question_id))
    source = corpus.database(question.db_id)
    graph = SchemaGraph.from_file(source)
    tables = select_tables(graph, question.gold_tables, mode, rng("tables", *draw, question.question_id), *sizes)
    with open_episode_database(source, tables) as database, Sandbox(database.path, limits, workers) as sandbox:
        yield World(question, tuple(tables), database, sandbox)
