"""Backend openai of an evaluation: a model behind a server (``rollout.served``), asked by the keys of ``server``.

The summary says which way it was asked, and what it does not take.
"""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from sqale_grpo.evaluate.backend import Backend, Failure
from sqale_grpo.evaluate.records import TokenCounts, token_counts
from sqale_grpo.rollout.chat import ChatFrame
from sqale_grpo.rollout.concurrent import in_threads
from sqale_grpo.rollout.http import HttpClient, ServerError
from sqale_grpo.rollout.served import Server
from sqale_grpo.rollout.tokens import EpisodeTokens
from sqale_grpo.rollout.world import World
from sqale_grpo.settings.evaluation import EvaluationConfig, ServerConfig


class ServerBackend:
    """Plays every episode in a thread of its own, ``server.concurrency`` at once."""

    def __init__(self, config: EvaluationConfig, client: HttpClient, frame: ChatFrame | None) -> None:
        """``frame``: of the model's tokenizer, None where it is not known. Raises ConfigError like ``open_server``."""
        self.config = config
        sampling, api = config.sampling.sampling(), config.server.api
        self.server = Server(client, config.model, sampling, frame, api, config.enable_thinking)
        self.facts: dict[str, Any] = {
            "parameters": config.parameters,
            "api": self.server.api,
            "not_sent": sorted(self.server.not_sent),
        }
        if self.server.context_tokens is not None:
            self.facts["context_tokens"] = self.server.context_tokens

    def play(self, episodes: Sequence[World], pool: ThreadPoolExecutor) -> list[TokenCounts | Failure]:
        """Every episode to its end; one whose request failed after all retries is a Failure."""
        return in_threads(lambda each: self._play(each, pool), episodes, self.config.server.concurrency)

    def remarks(self) -> list[str]:
        """What was left out, and where the server was not what an episode needs."""
        return self.server.remarks()

    def close(self) -> None:
        """Nothing is held: every request has a connection of its own."""

    def _play(self, each: World, pool: ThreadPoolExecutor) -> TokenCounts | Failure:
        try:
            played = self.server.play(each.episode, each.key, pool)
        except ServerError as error:
            return Failure(str(error))
        if isinstance(played, EpisodeTokens):
            return token_counts(len(played.prompt_ids), played.env_mask)
        answered = max(0, played.processed - played.prompt)
        return TokenCounts(played.prompt, answered, played.written, played.processed, played.reprocessed)


def client_of(section: ServerConfig, sleep: Callable[[float], None] = time.sleep) -> HttpClient:
    """The client of the section's server; ``sleep`` waits between two tries, in seconds."""
    return HttpClient(section.url, section.timeout_seconds, section.retries, section.key_variable, sleep)


def check_server(config: EvaluationConfig) -> None:
    """ConfigError where no server answers, it refuses the key, or the tokenizer for it has no fitting template."""
    client_of(config.server).models()
    _frame(config)


def open_server(config: EvaluationConfig) -> Backend:
    """The server of ``config``, asked how it wants to be asked.

    ConfigError where no server answers, the key is refused, or it does not have the model.
    """
    return ServerBackend(config, client_of(config.server), _frame(config))


def _frame(config: EvaluationConfig) -> ChatFrame | None:
    """The chat frame of the model's tokenizer, where one is known and wanted."""
    place = config.server.tokenizer or (config.model if Path(config.model).is_dir() else None)
    if place is None or config.server.api == "chat":
        return None
    from sqale_grpo.evaluate.local import frame_of

    return frame_of(config, place)
