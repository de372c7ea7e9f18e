"""Opening the backend that a configuration names; those without a model, which check the harness itself, stand here.

``oracle`` submits the gold query and must score 100%; ``empty`` submits an empty text and must score 0; ``no_rows``
submits a query without rows, which is right where the gold result has none and nowhere else.
"""

import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from sqale_grpo.corpus import Question
from sqale_grpo.env.episode import Finished
from sqale_grpo.evaluate.backend import Backend, Failure
from sqale_grpo.evaluate.records import TokenCounts
from sqale_grpo.rollout.play import OpenEpisode
from sqale_grpo.settings.evaluation import EvaluationConfig


class SubmittingBackend:
    """Submits an answer that is made of the question, in its first turn, without a model."""

    def __init__(self, answer: Callable[[Question], str]) -> None:
        self.facts: dict[str, Any] = {"parameters": None}
        self._answer = answer

    def play(self, episodes: Sequence[OpenEpisode], pool: ThreadPoolExecutor) -> list[TokenCounts | Failure]:
        """One ``submit_sql`` an episode."""
        return [self._submit(each) for each in episodes]

    def close(self) -> None:
        """Nothing is held."""

    def _submit(self, each: OpenEpisode) -> TokenCounts:
        call = {"tool": "submit_sql", "args": {"sql": self._answer(each.group.question)}}
        ended = each.episode.step(json.dumps(call))
        assert isinstance(ended, Finished), "submit_sql ends an episode whose gate is open"
        return TokenCounts()


def gold_answer(question: Question) -> str:
    """The gold query itself."""
    return question.gold_sql


def empty_answer(question: Question) -> str:
    """Nothing at all."""
    return ""


def answer_without_rows(question: Question) -> str:
    """The gold query's columns and none of its rows."""
    return f"SELECT * FROM (\n{question.gold_sql.rstrip().rstrip(';')}\n) LIMIT 0"


CHECKS = {"oracle": gold_answer, "empty": empty_answer, "no_rows": answer_without_rows}


def open_backend(config: EvaluationConfig) -> Backend:
    """The backend of a configuration, its model loaded or its server asked. Raises ConfigError."""
    # Late, so that the harness is checked without loading a model's libraries.
    if config.backend == "openai":
        from sqale_grpo.evaluate.server import open_server

        return open_server(config)
    if config.backend == "vllm":
        from sqale_grpo.evaluate.local import open_vllm

        return open_vllm(config)
    if config.backend == "transformers":
        from sqale_grpo.evaluate.local import open_local

        return open_local(config)
    return SubmittingBackend(CHECKS[config.backend])
