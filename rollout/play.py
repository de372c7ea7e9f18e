"""An update's episodes on this process: databases opened, episodes played, answers scored (agreement comes later)."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from sqale_grpo.corpus import PreparedCorpus
from sqale_grpo.env.episode import Episode
from sqale_grpo.reward import Outcome
from sqale_grpo.rollout.group import EpisodeSettings, Group
from sqale_grpo.rollout.tokens import EpisodeTokens
from sqale_grpo.rollout.world import EpisodeJob, World, open_worlds

TOOL_THREADS = 8  # episodes whose tools run at once: enough to keep the sandbox's processes busy, few to switch between

PlayFunction = Callable[[Sequence[Episode], Sequence[int]], list[EpisodeTokens]]


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
            worlds = open_worlds(corpus, jobs, settings, stack)
        with clock("generate"):
            tokens = play([each.episode for each in worlds], [each.key for each in worlds])
        with clock("reward"):
            outcomes = list(pool.map(World.outcome, worlds))
        return [
            PlayedEpisode(each.job, each.group, each.episode, written, outcome)
            for each, written, outcome in zip(worlds, tokens, outcomes, strict=True)
        ]
