"""One candidate's world: its question as phrased, the tables that exist, their database, the gate, episode and reward.

Whoever plays goes through here: training and evaluation open the worlds of many candidates at once (``open_worlds``),
other trainers one at a time (``open_world``). Needs no torch.
"""

import operator
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from types import TracebackType
from typing import Self

from sqale_grpo.corpus import CorpusError, PreparedCorpus, Question, open_prepared
from sqale_grpo.curriculum import gate_closed, gate_probability
from sqale_grpo.env.chance import key_int
from sqale_grpo.env.episode import Episode, Finished, Observation
from sqale_grpo.reward import GoldError, Outcome, score_candidate
from sqale_grpo.reward.score import void
from sqale_grpo.rollout.group import EpisodeSettings, Group, episode_settings, open_group
from sqale_grpo.settings.evaluation import EvaluationConfig
from sqale_grpo.settings.keys import Config


@dataclass(frozen=True)
class EpisodeJob:
    """One episode to play: question ``index`` of the corpus, candidate number within its group, gate closed or not.

    ``draw`` is (seed, update): with the question it fixes phrasing, tables and token sampling. ``repeat`` counts the
    groups that the same question has had in the same update: they share a database, and sample tokens of their own.
    """

    index: int
    candidate: int
    gated: bool
    draw: tuple[int, int]
    repeat: int = 0


@dataclass
class World:
    """A candidate's episode over its open database, and what it earns.

    ``key`` fixes its token sampling. Not for several threads at once. What ``open_world`` returned is closed by its
    block or by ``close``; worlds of ``open_worlds`` by the stack that they were opened on.
    """

    job: EpisodeJob
    group: Group
    episode: Episode
    key: int
    settings: EpisodeSettings
    _opened: ExitStack = field(default_factory=ExitStack, repr=False)
    _outcome: Outcome | None = field(default=None, repr=False)

    @property
    def question(self) -> Question:
        """The question, in the phrasing that was drawn."""
        return self.group.question

    def prompt(self) -> list[dict[str, str]]:
        """The first messages, ``{"role": ..., "content": ...}``: system and user."""
        return self.episode.prompt()

    def step(self, completion: str) -> Observation | Finished:
        """Take the policy's next completion: the next user turn, or the end. RuntimeError after the end."""
        return self.episode.step(completion)

    def score(self) -> Outcome:
        """What the finished episode earned, agreement left open; void where the machine failed in it.

        Raises GoldError where the gold query does not run, RuntimeError before the end.
        """
        finished, question, group = self.episode.finished, self.question, self.group
        if finished is None:
            raise RuntimeError("the episode goes on: it is scored when it has ended")
        if finished.failure is not None:
            return void(finished.failure)
        return score_candidate(
            question.gold_sql,
            group.database.path,
            finished.sql,
            group.sandbox,
            gold_seconds=self.settings.gold_seconds,
            question_id=question.question_id,
            copies=group.copies,
        )

    def outcome(self) -> Outcome:
        """The same, scored once; void where the gold query does not run: that ends no run, and no resumed one."""
        if self._outcome is None:
            try:
                self._outcome = self.score()
            except GoldError as error:
                self._outcome = void(str(error), "not_run")
        return self._outcome

    def close(self) -> None:
        """Close database and sandbox; the episode and its outcome can still be read."""
        self._opened.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open_world(
    corpus: PreparedCorpus | str | Path,
    seed: int,
    update: int,
    question: int | str,
    candidate: int = 0,
    config: Config | EvaluationConfig | None = None,
) -> World:
    """The world of ``candidate`` for ``question`` (its number in the prepared corpus, or its id) in ``update``.

    Phrasing, tables and gate are those that a run of ``seed`` would draw: the same arguments give the same world in
    every process. ``config``: of a run (None: the paper's recipe), with sampled tables and the gate of ``update``; or
    of an evaluation, with its schema and no gate. Raises CorpusError for a folder that is not prepared and for a
    question that it does not hold.
    """
    config = Config() if config is None else config
    prepared = corpus if isinstance(corpus, PreparedCorpus) else open_prepared(corpus)
    index = question_index(prepared, question)
    if isinstance(config, Config):
        settings, gated = episode_settings(config, "sampled"), gate(config, prepared, index, seed, update, candidate)
    else:
        settings, gated = episode_settings(config, config.schema), False
    with ExitStack() as stack:
        (world,) = open_worlds(prepared, [EpisodeJob(index, candidate, gated, (seed, update))], settings, stack)
        world._opened = stack.pop_all()
    return world


def open_worlds(
    corpus: PreparedCorpus, jobs: Sequence[EpisodeJob], settings: EpisodeSettings, stack: ExitStack
) -> list[World]:
    """The worlds of ``jobs``, in order; candidates of one question and draw share a database, closed by ``stack``."""
    groups: dict[tuple[int, tuple[int, int]], Group] = {}
    for index, draw in dict.fromkeys((job.index, job.draw) for job in jobs):
        opening = open_group(corpus, index, draw, settings)
        groups[index, draw] = stack.enter_context(opening)
    opened = []
    for job in jobs:
        group = groups[job.index, job.draw]
        episode = group.episode(settings, job.gated)
        repeated = (job.repeat,) if job.repeat else ()  # a question's first group keeps the tokens that it ever had
        key = key_int("tokens", *job.draw, group.question.question_id, job.candidate, *repeated)
        opened.append(World(job, group, episode, key, settings))
    return opened


def gate(config: Config, corpus: PreparedCorpus, index: int, seed: int, update: int, candidate: int) -> bool:
    """Whether the submit gate of ``candidate`` for question ``index`` is closed in ``update``."""
    probability = gate_probability(update, config.curriculum.gate_start, config.curriculum.gate_updates)
    return gate_closed(seed, update, corpus.question(index).question_id, candidate, probability)


def question_index(corpus: PreparedCorpus, question: int | str) -> int:
    """The number of a question in a prepared corpus, by number or id. Raises CorpusError."""
    if not isinstance(question, str):
        question = operator.index(question)  # of numpy too
        if 0 <= question < len(corpus):
            return question
        raise CorpusError(f"no question number {question} in {corpus.directory}: it holds {len(corpus):,}, from 0 on")
    numbers = _numbers(corpus)
    if question not in numbers:
        raise CorpusError(f"no question {question!r} in {corpus.directory}: its ids are like {next(iter(numbers))!r}")
    return numbers[question]


@lru_cache(maxsize=4)  # a task a world: without it each would read the ids of all questions
def _numbers(corpus: PreparedCorpus) -> dict[str, int]:
    return {name: number for number, name in enumerate(corpus.column("question_id"))}
