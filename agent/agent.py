"""The agent: answers questions over SQLite files by playing the episodes that it was trained on."""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import zip_longest
from pathlib import Path
from typing import Any

from sqale_grpo.agent.backends import Generate
from sqale_grpo.agent.settings import SETTINGS
from sqale_grpo.env.chance import key_int
from sqale_grpo.env.episode import Episode, EpisodeLimits, Finished, Observation, Turn
from sqale_grpo.env.limits import Limits, SqlError
from sqale_grpo.env.prompts import Prompts, load_prompts
from sqale_grpo.env.sandbox import Sandbox
from sqale_grpo.env.text import printable
from sqale_grpo.rollout.chat import ChatFrame
from sqale_grpo.rollout.tokens import EpisodeTokens
from sqale_grpo.settings.sampling import Sampling

TOOL_THREADS = 8
OnTurn = Callable[[int, Turn], None]


@dataclass(frozen=True)
class AgentQuestion:
    """One question over one database file. ``key`` fixes its token sampling; None: drawn from seed and question."""

    text: str
    database: str | Path
    evidence: str = ""
    key: int | None = None


class SQaLeAgent:
    """A loaded policy with its environment: ``SQaLeAgent(*vllm_generate(model))``. For one thread at a time."""

    def __init__(
        self,
        generate: Generate,
        frame: ChatFrame,
        prompts: Prompts | None = None,
        episode_limits: EpisodeLimits = SETTINGS.episode,
        query_limits: Limits = SETTINGS.query,
        sampling: Sampling = SETTINGS.sampling,
        seed: int = 0,
        rows: int = 1_000,
        batch: int = 64,
    ) -> None:
        """``generate`` and ``frame`` come from a backend, e.g. ``transformers_generate``.

        ``rows``: most rows of the answer's result that are returned; ``batch``: most episodes in flight.
        """
        self.generate = generate
        self.frame = frame
        self.prompts = prompts or load_prompts()
        self.episode_limits = episode_limits
        self.query_limits = query_limits
        self.sampling = sampling
        self.seed = seed
        self.rows = rows
        self.batch = batch

    def run(
        self, question: str, db_path: str | Path, evidence: str = "", on_turn: OnTurn | None = None
    ) -> dict[str, Any]:
        """Answer one question; ``evidence`` is a hint shown after it.

        Returns a dict: ``sql`` (None: no answer), ``moment`` (UTC, at which its rows were read: all of one moment of a
        file that a program writes), ``columns`` and ``rows`` of its result with ``truncated`` where there
        are more, ``error`` (None, or why the query does not run), ``ended_by``, ``turns`` and ``calls`` (counts),
        ``seconds``, ``trace`` (a dict per turn: ``completion``, ``calls``, ``observation``, ``moment``), ``question``,
        ``database``, and token ids: ``prompt_ids``, ``completion_ids``, ``env_mask`` (1: the policy wrote it).

        ``on_turn(number, turn)`` is called as turns end. The database is opened read-only. Raises FileNotFoundError or
        ValueError where it is no readable SQLite database.
        """
        return self.run_many([AgentQuestion(question, db_path, evidence)], on_turn)[0]

    def run_many(self, questions: Sequence[AgentQuestion], on_turn: OnTurn | None = None) -> list[dict[str, Any]]:
        """Answer questions together, results in their order; each as of ``run``."""
        results: list[dict[str, Any]] = []
        with ThreadPoolExecutor(TOOL_THREADS, thread_name_prefix="tools") as pool:
            for start in range(0, len(questions), self.batch):
                results += self._answer(questions[start : start + self.batch], pool, on_turn)
        return results

    def _answer(
        self, questions: Sequence[AgentQuestion], pool: ThreadPoolExecutor, on_turn: OnTurn | None
    ) -> list[dict[str, Any]]:
        with ExitStack() as stack:
            sandboxes = {
                database: stack.enter_context(open_database(database, self.query_limits))
                for database in dict.fromkeys(Path(question.database) for question in questions)
            }
            episodes = [self._episode(question, sandboxes[Path(question.database)], on_turn) for question in questions]
            keys = self._keys(questions)
            started = time.monotonic()
            tokens = self.generate(episodes, keys, self.sampling, pool)
            seconds = time.monotonic() - started
            return [
                self._result(question, episode, sandboxes[Path(question.database)], made, seconds)
                for question, episode, made in zip(questions, episodes, tokens, strict=True)
            ]

    def _episode(self, question: AgentQuestion, sandbox: Sandbox, on_turn: OnTurn | None) -> "_Watched":
        text, evidence = printable(question.text), printable(question.evidence)
        return _Watched(text, sandbox, self.episode_limits, False, evidence, self.prompts, on_turn=on_turn)

    def _keys(self, questions: Sequence[AgentQuestion]) -> list[int]:
        """One a question, all different: the same question asked twice is drawn twice."""
        keys: list[int] = []
        for question in questions:
            asked = (question.text, question.evidence, str(question.database))
            number = 0
            while (key := key_int("agent", self.seed, *asked, number)) in keys:
                number += 1
            keys.append(key if question.key is None else question.key)
        return keys

    def _result(
        self, question: AgentQuestion, episode: "_Watched", sandbox: Sandbox, tokens: EpisodeTokens, seconds: float
    ) -> dict[str, Any]:
        assert episode.finished is not None
        sql = episode.finished.sql
        return {
            "question": question.text,
            "database": str(question.database),
            "sql": sql,
            "moment": moment(),
            **answer_rows(sandbox, sql, self.rows),
            "ended_by": episode.finished.ended_by,
            "turns": len(episode.turns),
            "calls": sum(len(turn.calls) for turn in episode.turns),
            "seconds": seconds,
            "trace": [
                {**turn_record(turn), "moment": when}
                for turn, when in zip_longest(episode.turns, episode.moments[: len(episode.turns)])
            ],
            "prompt_ids": tokens.prompt_ids,
            "completion_ids": tokens.completion_ids,
            "env_mask": tokens.env_mask,
        }


class _Watched(Episode):
    """An episode that tells of every turn as it ends."""

    def __init__(self, *arguments: Any, on_turn: OnTurn | None) -> None:
        super().__init__(*arguments)
        self.on_turn = on_turn
        self.moments: list[str] = []  # when the calls of each turn began

    def step(self, completion_text: str) -> Observation | Finished:
        """The episode's own step."""
        self.moments.append(moment())
        answer = super().step(completion_text)
        if self.on_turn is not None:
            self.on_turn(len(self.turns), self.turns[-1])
        return answer


def moment() -> str:
    """Now, in UTC."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def open_database(database: Path, limits: Limits) -> Sandbox:
    """A sandbox on a file, read-only.

    Raises FileNotFoundError or ValueError where it is no readable database, or one without a table.
    """
    sandbox = Sandbox(database, limits)
    # A file that is no database is to fail here, not at the first call; one of 0 bytes is a database to SQLite.
    if not sandbox.schema.tables and not sandbox.schema.views:
        sandbox.close()
        raise ValueError(f"{database} holds no table: there is nothing to ask")
    return sandbox


def answer_rows(sandbox: Sandbox, sql: str | None, most: int) -> dict[str, Any]:
    """Columns and up to ``most`` rows of the answer's result, or why there is none."""
    none: dict[str, Any] = {"columns": [], "rows": [], "truncated": False}
    if sql is None:
        return {**none, "error": None}
    try:
        result = sandbox.execute(sql, most)
    except SqlError as error:
        return {**none, "error": str(error)}
    return {"columns": list(result.columns), "rows": result.rows, "truncated": result.truncated, "error": None}


def turn_record(turn: Turn) -> dict[str, Any]:
    """A turn as plain data."""
    calls = [{"tool": call.tool, "args": call.args, "result": call.result, "error": call.error} for call in turn.calls]
    return {"completion": turn.completion, "calls": calls, "observation": turn.observation}
