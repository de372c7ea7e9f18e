"""Opening the backend that a configuration names; those without a model, which check the harness itself, stand here.

``oracle`` submits the gold query and must score 100%; ``empty`` submits an empty text and must score 0; ``no_rows``
submits a query without rows, which is right where the gold result has none and nowhere else.
"""

import json
import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from sqale_grpo.corpus import Question
from sqale_grpo.env.episode import Finished
from sqale_grpo.evaluate.backend import Backend, Failure
from sqale_grpo.evaluate.records import TokenCounts
from sqale_grpo.rollout.world import World
from sqale_grpo.settings.evaluation import EvaluationConfig

# A piece of SQL: blanks, semicolons and comments apart from quoted text, in which these are none.
_PIECE = re.compile(
    r"""(?P<blank>\s+|;|--[^\n]*|/\*.*?(?:\*/|\Z))|'(?:[^']|'')*'|"(?:[^"]|"")*"|`[^`]*`|\[[^]]*\]|.""", re.DOTALL
)


class SubmittingBackend:
    """Submits an answer that is made of the question, in its first turn, without a model."""

    def __init__(self, answer: Callable[[Question], str]) -> None:
        self.facts: dict[str, Any] = {"parameters": None}
        self._answer = answer

    def play(self, episodes: Sequence[World], pool: ThreadPoolExecutor) -> list[TokenCounts | Failure]:
        """One ``submit_sql`` an episode."""
        return [self._submit(each) for each in episodes]

    def remarks(self) -> list[str]:
        """Nothing to say."""
        return []

    def close(self) -> None:
        """Nothing is held."""

    def _submit(self, each: World) -> TokenCounts:
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
    return f"SELECT * FROM (\n{without_end(question.gold_sql)}\n) LIMIT 0"


def without_end(sql: str) -> str:
    """A statement up to its last word: what stands behind, semicolons and comments, must not go into brackets."""
    return sql[: max((piece.end() for piece in _PIECE.finditer(sql) if piece["blank"] is None), default=0)]


CHECKS = {"oracle": gold_answer, "empty": empty_answer, "no_rows": answer_without_rows}


def check_model(config: EvaluationConfig) -> None:
    """ConfigError for what is wrong with the model that can be told before questions are read or weights are loaded.

    That is a server which is not there or refuses the key, and a tokenizer whose chat template fits no episode.
    """
    if config.backend == "openai":
        from sqale_grpo.evaluate.server import check_server

        check_server(config)
    elif config.backend in ("transformers", "vllm"):
        from sqale_grpo.evaluate.local import frame_of

        frame_of(config, config.model)


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
