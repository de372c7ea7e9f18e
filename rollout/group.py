"""One question's database and episodes, shared by all candidates of its group; and what all groups share."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache

from sqale_grpo.corpus import PreparedCorpus, Question
from sqale_grpo.env.chance import rng
from sqale_grpo.env.episode import Episode, EpisodeLimits
from sqale_grpo.env.prompts import Prompts
from sqale_grpo.env.sandbox import Limits, Sandbox, WorkerPool, default_pool
from sqale_grpo.env.schema import SchemaGraph
from sqale_grpo.reward.copies import Copies
from sqale_grpo.sampler import EpisodeDatabase, open_episode_database, select_tables
from sqale_grpo.sampler.folders import memory_root, scratch_folder
from sqale_grpo.settings.evaluation import EvaluationConfig
from sqale_grpo.settings.files import read_prompts
from sqale_grpo.settings.keys import Config

COPY_BYTES = 16 * 2**20  # free memory that is wanted where counter-databases go


@dataclass(frozen=True)
class EpisodeSettings:
    """What is equal for all episodes of a run or an evaluation."""

    limits: Limits
    episode: EpisodeLimits
    prompts: Prompts
    evidence: bool
    with_evidence: bool  # ask in the wording that carries its evidence
    schema: str  # which tables exist: gold, distractors:N, full, sampled
    sizes: tuple[int, int]  # smallest and largest target of ``sampled``
    gold_seconds: float
    counter_databases: int
    workers: WorkerPool


def episode_settings(config: Config | EvaluationConfig, schema: str) -> EpisodeSettings:
    """What all episodes share; a run trains on the schema ``sampled``, an evaluation names its own.

    Raises ConfigError where ``env.prompts`` names no file of prompts.
    """
    env = config.env
    return EpisodeSettings(
        limits=env.query_limits(),
        episode=env.episode_limits(),
        prompts=read_prompts(env.prompts),
        evidence=config.corpus.evidence,
        with_evidence=config.corpus.phrasing == "evidence",
        schema=schema,
        sizes=config.sampler.sizes(),
        gold_seconds=config.reward.gold_seconds,
        counter_databases=config.reward.counter_databases,
        workers=default_pool() if env.workers is None else worker_pool(env.workers),
    )


@cache
def worker_pool(workers: int) -> WorkerPool:
    """``workers`` processes that run queries; training and evaluation share them."""
    return WorkerPool(workers)


@dataclass(frozen=True)
class Group:
    """What a group's episodes share: the question, the tables that exist, their database, its sandbox and copies."""

    question: Question
    tables: tuple[str, ...]
    database: EpisodeDatabase
    sandbox: Sandbox
    copies: Copies

    def episode(self, settings: EpisodeSettings, gated: bool) -> Episode:
        """A fresh episode over this database."""
        return Episode(
            self.question.text,
            self.sandbox,
            settings.episode,
            gated=gated,
            evidence=self.question.evidence if settings.evidence else "",
            prompts=settings.prompts,
        )


def drawn(
    corpus: PreparedCorpus, index: int, draw: tuple[int, int], settings: EpisodeSettings
) -> tuple[Question, Sequence[str]]:
    """Question ``index`` in the phrasing, and the tables, that the draw (seed, update) gives it."""
    plain = corpus.question(index)
    question = corpus.question(index, rng("phrasing", *draw, plain.question_id), settings.with_evidence)
    graph = SchemaGraph.from_file(corpus.database(question.db_id))
    chance = rng("tables", *draw, question.question_id)
    return question, select_tables(graph, question.gold_tables, settings.schema, chance, *settings.sizes)


@contextmanager
def open_group(corpus: PreparedCorpus, index: int, draw: tuple[int, int], settings: EpisodeSettings) -> Iterator[Group]:
    """Question ``index`` with the phrasing and the tables that the draw (seed, update) gives it."""
    question, tables = drawn(corpus, index, draw, settings)
    source = corpus.database(question.db_id)
    with (
        open_episode_database(source, tables) as database,
        Sandbox(database.path, settings.limits, settings.workers, immutable=True) as sandbox,
    ):
        seeds, folder = question.copies[: settings.counter_databases], scratch_folder(memory_root(COPY_BYTES))
        with Copies(question.gold_sql, question.gold_tables, seeds, sandbox, folder) as copies:
            yield Group(question, tuple(tables), database, sandbox, copies)
