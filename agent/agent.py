"""The agent: answers questions over SQLite files by playing the episodes that it was trained on."""

import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from sqale_grpo.agent.answer import answer_rows, moment, open_database, turn_record, voted
from sqale_grpo.agent.backends import Generate
from sqale_grpo.agent.settings import SETTINGS
from sqale_grpo.agent.votes import Votes, count_votes
from sqale_grpo.env.chance import key_int
from sqale_grpo.env.episode import Episode, EpisodeLimits, Finished, Observation, Turn
from sqale_grpo.env.limits import Limits
from sqale_grpo.env.prompts import Prompts, load_prompts
from sqale_grpo.env.sandbox import Sandbox
from sqale_grpo.env.text import printable
from sqale_grpo.rollout.chat import ChatFrame
from sqale_grpo.rollout.tokens import EpisodeTokens
from sqale_grpo.settings.sampling import Sampling

TOOL_THREADS = 8
SURE = 0.5  # share of agreement from which an answer is given, where no evaluation calibrated it


@dataclass(frozen=True)
class AgentTurn:
    """A turn that has ended: the ``number`` of it (from 1) in the episode of a ``candidate`` (from 0)."""

    candidate: int
    number: int
    turn: Turn


OnTurn = Callable[[AgentTurn], None]


class Left(Exception):
    """Nobody waits for the answer any more."""


@dataclass(frozen=True)
class AgentQuestion:
    """One question over one database file.

    ``key`` fixes the token sampling of its first candidate; None: drawn from seed and question.
    """

    text: str
    database: str | Path
    evidence: str = ""
    key: int | None = None


class SQaLeAgent:
    """A loaded policy with its environment: ``SQaLeAgent(*vllm_generate(model))``. Safe for several threads."""

    def __init__(
        self,
        generate: Generate,
        frame: ChatFrame | None = None,
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
        self,
        question: str,
        db_path: str | Path,
        evidence: str = "",
        on_turn: OnTurn | None = None,
        candidates: int = 1,
        sure: float = SURE,
    ) -> dict[str, Any]:
        """Answer one question; ``evidence`` is a hint shown after it.

        ``candidates``: episodes that are played; of several the answer is the one whose result most of them gave, and
        none where their share is below ``sure``.

        Returns a dict: ``sql`` (None: no answer), ``moment`` (UTC, at which its rows were read: all of one moment of a
        file that a program writes), ``columns`` and ``rows`` of its result with ``truncated`` where there
        are more, ``error`` (None, or why the query does not run), ``ended_by``, ``turns`` and ``calls`` (counts),
        ``seconds``, ``trace`` (a dict per turn: ``completion``, ``calls``, ``observation``, ``moment``), ``question``,
        ``database``, and token ids: ``prompt_ids``, ``completion_ids``, ``env_mask`` (1: the policy wrote it; empty
        where a server keeps them). Of several candidates those are of the first that gave the answer. ``candidates``;
        ``agreement``, the share that gave the most frequent result, ``threshold`` (``sure``), ``is_sure`` (all None
        of one candidate), ``votes``, the two most frequent results (``count``, ``share``, ``sql``, ``columns``,
        ``rows``, ``truncated``), and ``difference``, what tells these apart.

        ``on_turn`` is called as turns end. The database is opened read-only. Raises FileNotFoundError or
        ValueError where it is no readable SQLite database.
        """
        return self.run_many([AgentQuestion(question, db_path, evidence)], on_turn, candidates, sure)[0]

    def stream(self, question: AgentQuestion, candidates: int = 1, sure: float = SURE) -> Iterator[AgentTurn | dict]:
        """Answer one question: every turn as it ends, at last the answer as of ``run``, whose errors it raises.

        An iterator that is closed before its end has its episodes ended with the turns that are being written.
        """
        told: queue.Queue[AgentTurn | dict | BaseException] = queue.Queue()
        left = threading.Event()

        def tell(turn: AgentTurn) -> None:
            if left.is_set():
                raise Left
            told.put(turn)

        def work() -> None:
            try:
                told.put(self.run_many([question], tell, candidates, sure)[0])
            except BaseException as error:  # the one who asks is to see it, whatever it is
                told.put(error)

        threading.Thread(target=work, name="agent", daemon=True).start()
        try:
            while True:
                found = told.get()
                if isinstance(found, BaseException):
                    raise found
                yield found
                if isinstance(found, dict):
                    return
        finally:
            left.set()

    def run_many(
        self,
        questions: Sequence[AgentQuestion],
        on_turn: OnTurn | None = None,
        candidates: int = 1,
        sure: float = SURE,
    ) -> list[dict[str, Any]]:
        """Answer questions together, results in their order; each as of ``run``."""
        results: list[dict[str, Any]] = []
        size = max(1, self.batch // candidates)
        with ThreadPoolExecutor(TOOL_THREADS, thread_name_prefix="tools") as pool:
            for start in range(0, len(questions), size):
                results += self._answer(questions[start : start + size], pool, on_turn, candidates, sure)
        return results

    def _answer(
        self,
        questions: Sequence[AgentQuestion],
        pool: ThreadPoolExecutor,
        on_turn: OnTurn | None,
        candidates: int,
        sure: float,
    ) -> list[dict[str, Any]]:
        with ExitStack() as stack:
            sandboxes = {
                database: stack.enter_context(open_database(database, self.query_limits))
                for database in dict.fromkeys(Path(question.database) for question in questions)
            }
            episodes = [
                self._episode(question, sandboxes[Path(question.database)], candidate, on_turn)
                for question in questions
                for candidate in range(candidates)
            ]
            keys = self._keys(questions, candidates)
            started = time.monotonic()
            tokens = self.generate(episodes, keys, self.sampling, pool)
            seconds = time.monotonic() - started
            return [
                self._result(
                    question,
                    episodes[place * candidates :][:candidates],
                    sandboxes[Path(question.database)],
                    tokens[place * candidates :][:candidates],
                    seconds,
                    sure,
                )
                for place, question in enumerate(questions)
            ]

    def _episode(self, question: AgentQuestion, sandbox: Sandbox, candidate: int, on_turn: OnTurn | None) -> "_Watched":
        text, evidence = printable(question.text), printable(question.evidence)
        return _Watched(
            text,
            sandbox,
            self.episode_limits,
            False,
            evidence,
            self.prompts,
            candidate=candidate,
            on_turn=on_turn,
        )

    def _keys(self, questions: Sequence[AgentQuestion], candidates: int) -> list[int]:
        """One a candidate, all different: the same question asked twice is drawn twice."""
        keys: list[int] = []
        for question in questions:
            asked = (question.text, question.evidence, str(question.database))
            for candidate in range(candidates):
                number = 0
                while (key := key_int("agent", self.seed, *asked, number)) in keys:
                    number += 1
                if question.key is not None:
                    key = question.key if candidate == 0 else key_int("candidate", question.key, candidate)
                keys.append(key)
        return keys

    def _result(
        self,
        question: AgentQuestion,
        episodes: Sequence["_Watched"],
        sandbox: Sandbox,
        tokens: Sequence[EpisodeTokens],
        seconds: float,
        sure: float,
    ) -> dict[str, Any]:
        counted = Votes([], False)
        if len(episodes) > 1:
            counted = count_votes([episode.answer for episode in episodes], sandbox)
        vote = voted(counted, len(episodes), sure, self.rows)
        chosen = counted.found[0].candidates[0] if counted.found else 0
        episode, written = episodes[chosen], tokens[chosen]
        assert episode.finished is not None
        sql = episode.answer if vote["is_sure"] is not False else None
        return {
            "question": question.text,
            "database": str(question.database),
            "sql": sql,
            "moment": moment(),
            **answer_rows(sandbox, sql, self.rows),
            **vote,
            "ended_by": episode.finished.ended_by,
            "turns": len(episode.turns),
            "calls": sum(len(turn.calls) for turn in episode.turns),
            "seconds": seconds,
            "trace": [
                {**turn_record(turn), "moment": when}
                for turn, when in zip_longest(episode.turns, episode.moments[: len(episode.turns)])
            ],
            "prompt_ids": written.prompt_ids,
            "completion_ids": written.completion_ids,
            "env_mask": written.env_mask,
        }


class _Watched(Episode):
    """An episode that tells of every turn as it ends."""

    def __init__(self, *arguments: Any, candidate: int, on_turn: OnTurn | None) -> None:
        super().__init__(*arguments)
        self.candidate = candidate
        self.on_turn = on_turn
        self.moments: list[str] = []  # when the calls of each turn began

    @property
    def answer(self) -> str | None:
        """Its SQL; None where it gave none."""
        return self.finished.sql if self.finished is not None else None

    def step(self, completion_text: str) -> Observation | Finished:
        """The episode's own step."""
        self.moments.append(moment())
        answer = super().step(completion_text)
        if self.on_turn is not None:
            self.on_turn(AgentTurn(self.candidate, len(self.turns), self.turns[-1]))
        return answer
