"""An update's episodes on this process: databases opened, episodes played, answers scored (agreement comes later)."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from sqale_grpo.corpus import PreparedCorpus
from sqale_grpo.env.chance import key_int
from sqale_grpo.env.episode import Episode
from sqale_grpo.reward import GoldError, Outcome, score_candidate
from sqale_grpo.reward.score import void
from sqale_grpo.rollout.group import EpisodeSettings, Group, open_group
from sqale_grpo.rollout.tokens import EpisodeTokens

TOOL_THREADS = 8  # episodes whose tools run at once: enough to keep the sandbox's processes busy, few to switch between

PlayFunction = Callable[[Sequence[Episode], Sequence[int]], list[EpisodeTokens]]


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
class PlayedEpisode:
    """One episode after it was played and scored."""

    job: EpisodeJob
    group: Group
    episode: Episode
    tokens: EpisodeTokens
    outcome: Outcome

    @property
    def answer(self) -> str | None:
        """The SQL that was scored."""
        assert self.episode.finished is not None
        return self.episode.finished.sql

    @property
    def facts(self) -> dict[str, Any]:
        """Counts that metrics are made of."""
        assert self.episode.finished is not None
        return {
            "rounds": len(self.episode.turns),
            "calls": sum(len(turn.calls) for turn in self.episode.turns),
            "ended_by": self.episode.finished.ended_by,
            "written_tokens": sum(self.tokens.env_mask),
            "completion_tokens": len(self.tokens.completion_ids),
        }


@dataclass(frozen=True)
class OpenEpisode:
    """An episode that can be played: its database is open. ``key`` fixes its token sampling."""

    job: EpisodeJob
    group: Group
    episode: Episode
    key: int


def open_episodes(
    corpus: PreparedCorpus, jobs: Sequence[EpisodeJob], settings: EpisodeSettings, stack: ExitStack
) -> list[OpenEpisode]:
    """The episodes of ``jobs``, in order; candidates of one question and draw share a database, closed by ``stack``."""
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
        opened.append(OpenEpisode(job, group, episode, key))
    return opened


def play_jobs(
    corpus: PreparedCorpus,
    jobs: Sequence[EpisodeJob],
    settings: EpisodeSettings,
    play: PlayFunction,
    pool: ThreadPoolExecutor,
    clock: Callable[[str], Any],
) -> list[PlayedEpisode]:
    """Play and score ``jobs`` in order; candidates of one question and draw share one database.

    ``clock(stage)`` is a context manager that adds to the stage's seconds: build, generate, reward.
    """
    with ExitStack() as stack:
        with clock("build"):
            opened = open_episodes(corpus, jobs, settings, stack)
        with clock("generate"):
            tokens = play([each.episode for each in opened], [each.key for each in opened])
        with clock("reward"):
            outcomes = list(pool.map(lambda each: outcome_of(each.group, each.episode, settings), opened))
        return [
            PlayedEpisode(each.job, each.group, each.episode, written, outcome)
            for each, written, outcome in zip(opened, tokens, outcomes, strict=True)
        ]


def outcome_of(group: Group, episode: Episode, settings: EpisodeSettings) -> Outcome:
    """What a finished episode earned; void where its gold query does not run: that ends no run, and no resumed one."""
    try:
        return score_episode(group, episode, settings)
    except GoldError as error:
        return void(str(error), "not_run")


def score_episode(group: Group, episode: Episode, settings: EpisodeSettings) -> Outcome:
    """What a finished episode earned, agreement left open; void where the machine failed in it.

    Raises GoldError where the gold query does not run.
    """
    assert episode.finished is not None
    if episode.finished.failure is not None:
        return void(episode.finished.failure)
    question = group.question
    return score_candidate(
        question.gold_sql,
        group.database.path,
        episode.finished.sql,
        group.sandbox,
        gold_seconds=settings.gold_seconds,
        question_id=question.question_id,
        copies=group.copies,
    )
