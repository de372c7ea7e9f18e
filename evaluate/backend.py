"""Who answers: the interface between the runner and a model."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol

from sqale_grpo.evaluate.records import TokenCounts
from sqale_grpo.rollout.world import World


@dataclass(frozen=True)
class Failure:
    """An episode that could not be played for a reason outside of it, such as a server that does not answer."""

    message: str


class Backend(Protocol):
    """A model that plays episodes."""

    facts: dict[str, Any]  # what the summary says of it: parameters, which interface answered, what was left out

    def play(self, episodes: Sequence[World], pool: ThreadPoolExecutor) -> list[TokenCounts | Failure]:
        """Play every episode to its end (``episode.finished``), in order; what fails is a Failure and stays open.

        ``pool`` runs tools. What ends the whole evaluation (a wrong key, an unknown model) is a ConfigError.
        """
        ...

    def remarks(self) -> list[str]:
        """What a reader of the figures must know of how they came about, after episodes were played; a line each."""
        ...

    def close(self) -> None:
        """Give back what the backend holds."""
        ...
