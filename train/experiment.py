"""An experiment: everything a run needs besides the model, built from its configuration."""

from bisect import bisect_left
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Protocol

from datasets import Dataset
from torch.utils.data import Sampler
from transformers import PreTrainedTokenizerBase

from sqale_grpo.corpus import PreparedCorpus
from sqale_grpo.curriculum import Buckets, Curriculum, MixtureSchedule, gate_closed, gate_probability, masked_length
from sqale_grpo.curriculum.batch_sampler import CurriculumSampler
from sqale_grpo.env.episode import EpisodeLimits
from sqale_grpo.env.prompts import load_prompts
from sqale_grpo.env.sandbox import Limits, WorkerPool, default_pool
from sqale_grpo.rollout.chat import ChatFrame, chat_frame
from sqale_grpo.rollout.play import EpisodeJob, EpisodeSettings
from sqale_grpo.rollout.tokens import Sampling
from sqale_grpo.settings.files import find_prompts
from sqale_grpo.settings.keys import Config, EnvConfig, RewardConfig, SamplerConfig

TOOL_THREADS = 8  # episodes whose tools run at once: enough to keep the sandbox's processes busy, few to switch between


@dataclass(frozen=True)
class Experiment:
    """A training run's fixed parts."""

    config: Config
    folder: Path
    corpus: PreparedCorpus
    dataset: Dataset
    eligible: list[int]
    buckets: Buckets
    curriculum: Curriculum
    settings: EpisodeSettings
    frame: ChatFrame
    sampling: Sampling
    pool: ThreadPoolExecutor

    def sampler(self, repeats: int) -> Sampler:
        """The whole run's order of questions; each update's batch comes ``repeats`` times, as TRL's loader reads it."""
        train = self.config.train
        return CurriculumSampler(
            lambda update: [self.eligible[position] for position in self.curriculum.batch(update)],
            train.max_steps,
            train.questions_per_update,
            train.candidates,
            repeats,
        )

    def job(self, index: int, update: int, candidate: int) -> EpisodeJob:
        """The episode of question ``index`` and ``candidate`` in ``update``, its gate drawn."""
        config = self.config
        probability = gate_probability(update, config.curriculum.gate_start, config.curriculum.gate_updates)
        question_id = self.corpus.question(index).question_id
        gated = gate_closed(config.seed, update, question_id, candidate, probability)
        return EpisodeJob(index, candidate, gated, (config.seed, update))

    def jobs(self, indices: Sequence[int], update: int, process: int) -> list[EpisodeJob]:
        """The episodes of ``process`` (its rank): ``indices`` is its slice of the update's batch, groups in a row.

        A group may begin on one process and end on the next: candidates are counted from the start of the batch.
        """
        first = process * len(indices)
        size = self.config.train.candidates
        return [self.job(index, update, (first + position) % size) for position, index in enumerate(indices)]

    def bucket_name(self, index: int) -> str:
        """Name of the length bucket of question ``index``."""
        return self.buckets.names[self.buckets.bucket_of[bisect_left(self.eligible, index)]]


def make_experiment(
    config: Config,
    folder: Path,
    corpus: PreparedCorpus,
    eligible: list[int],
    tokenizer: PreTrainedTokenizerBase,
) -> Experiment:
    """Assemble the parts."""
    sqls = corpus.gold_sqls()
    buckets = Buckets.from_lengths([masked_length(sqls[index]) for index in eligible], config.curriculum.percentiles)
    schedule = MixtureSchedule(
        config.curriculum.warmup_updates,
        config.curriculum.ramp_updates,
        tuple(config.curriculum.start),
        tuple(config.curriculum.end),
        config.curriculum.strength,
        buckets.shares,
    )
    rollout = config.rollout
    return Experiment(
        config,
        folder,
        corpus,
        Dataset.from_dict({"prompt": [str(index) for index in range(len(corpus))]}),
        eligible,
        buckets,
        Curriculum(buckets, schedule, config.train.questions_per_update, config.seed),
        episode_settings(config, "sampled", config.env.query_seconds),
        chat_frame(tokenizer, config.model.enable_thinking),
        Sampling(
            rollout.temperature, rollout.top_p, rollout.top_k, rollout.max_turn_tokens, rollout.max_episode_tokens
        ),
        ThreadPoolExecutor(TOOL_THREADS, thread_name_prefix="tools"),
    )


class _ShowsEvidence(Protocol):
    evidence: bool


class EpisodeKeys(Protocol):
    """The sections that say what an episode is like, as a run and an evaluation have them."""

    @property
    def env(self) -> EnvConfig:
        """Turns, limits, sizes of results, prompts."""

    @property
    def sampler(self) -> SamplerConfig:
        """Sizes of sampled databases."""

    @property
    def reward(self) -> RewardConfig:
        """How an answer is scored."""

    @property
    def corpus(self) -> _ShowsEvidence:
        """Whether evidence is shown."""


def episode_settings(config: EpisodeKeys, mode: str, query_seconds: float) -> EpisodeSettings:
    """What all episodes share; training and evaluation differ in the tables' ``mode`` and the time a query may run."""
    env = config.env
    return EpisodeSettings(
        Limits(seconds=query_seconds, rows=env.max_rows, length=env.value_bytes, memory_mb=env.memory_mb),
        EpisodeLimits(
            tool_turns=env.tool_turns,
            error_cap=env.error_cap,
            preview_rows=env.preview_rows,
            sample_rows_cap=env.sample_rows_cap,
            distinct_values_cap=env.distinct_values_cap,
            cell_chars=env.cell_chars,
            result_chars=env.result_chars,
        ),
        load_prompts(find_prompts(env.prompts)),
        config.corpus.evidence,
        mode,
        (config.sampler.min_tables, config.sampler.max_tables),
        config.reward.gold_seconds,
        default_pool() if env.workers is None else worker_pool(env.workers),
    )


@cache
def worker_pool(workers: int) -> WorkerPool:
    """``workers`` processes that run queries; training and evaluation share them."""
    return WorkerPool(workers)
