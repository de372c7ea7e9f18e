"""Episodes as requests: every turn is one request to an engine that takes them as they come (vLLM, a server).

No episode waits for another: its tools run in threads while the engine writes for others, and its next turn is
submitted as soon as they are done. Imports no torch.
"""

import time
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from dataclasses import dataclass
from typing import Protocol

from sqale_grpo.env.episode import Episode
from sqale_grpo.env.errors import UserError
from sqale_grpo.rollout.chat import ChatFrame
from sqale_grpo.rollout.row import EpisodeRow
from sqale_grpo.rollout.tokens import EpisodeTokens, RolloutStats
from sqale_grpo.settings.sampling import Sampling


class EngineLost(UserError):
    """What generates cannot go on; a run goes back to its last checkpoint."""

    exit_status = 1


@dataclass(frozen=True)
class Completion:
    """What an engine wrote for a request, the stop token included; ``logprobs`` one a token.

    ``full``: it wrote nothing because its context is full: the episode ends as at the end of its budget.
    """

    request: int
    token_ids: list[int]
    logprobs: list[float]
    full: bool = False


class Engine(Protocol):
    """Writes turns. It stops on the chat frame's stop ids, and samples as it was set up to."""

    def submit(self, request: int, token_ids: list[int], max_tokens: int) -> None:
        """Continue ``token_ids`` by at most ``max_tokens``.

        ``request`` is the episode's key, the same for all of its turns, of which one at a time is under way. An engine
        that can may draw its random numbers from it and the number of tokens so far.
        """
        ...

    def collect(self) -> list[Completion]:
        """Wait for submitted requests and return those that are finished.

        It may come back with none after a short while (a decode step, some milliseconds), and should: until it does,
        an episode whose tools are done waits.
        """
        ...


def play_requests(
    engine: Engine,
    frame: ChatFrame,
    episodes: Sequence[Episode],
    keys: Sequence[int],
    sampling: Sampling,
    pool: Executor,
    stats: RolloutStats | None = None,
) -> list[EpisodeTokens]:
    """Play all ``episodes`` to their end with ``engine`` and return their tokens in the same order.

    ``keys`` are 64-bit integers, one an episode, under which the engine knows them; of equal ones (a question that an
    update holds twice) the later takes the next free number. Masks, budgets and frame tokens are those of
    ``lockstep.play``: both keep their books with the same EpisodeRow. A turn that the engine ended short of its budget
    and without a stop token is taken as it is.
    """
    started = time.monotonic()
    stats = stats or RolloutStats()
    rows: dict[int, EpisodeRow] = {}
    for key, episode in zip(keys, episodes, strict=True):
        while key in rows:
            key += 1
        rows[key] = EpisodeRow(episode, frame, sampling)
    ready = [key for key, row in rows.items() if not row.done]
    writing: set[int] = set()  # keys of the episodes that the engine has
    tools: dict[Future, int] = {}
    while ready or writing or tools:
        for key in ready:
            engine.submit(key, rows[key].tokens.prompt_ids + rows[key].tokens.completion_ids, rows[key].room)
            writing.add(key)
        for completion in engine.collect() if writing else ():
            writing.remove(completion.request)
            row = rows[completion.request]
            _take(row, completion, pool)
            if row.pending is not None:
                tools[row.pending] = completion.request
        if tools and not writing:
            waited = time.monotonic()
            wait(tools, return_when=FIRST_COMPLETED)
            stats.tool_seconds += time.monotonic() - waited
        ready = [tools.pop(future) for future in list(tools) if future.done()]
        for key in ready:
            rows[key].resolve()
            _feed(rows[key])
        ready = [key for key in ready if not rows[key].done]
    stats.seconds += time.monotonic() - started
    return [row.tokens for row in rows.values()]


def _take(row: EpisodeRow, completion: Completion, pool: Executor) -> None:
    if completion.full:
        row.stop()
        return
    for token, logprob in zip(completion.token_ids, completion.logprobs, strict=True):
        if not row.writing:
            raise RuntimeError("the engine wrote on after a stop token or past its budget: it was set up wrongly")
        row.take_sample(token, logprob, pool)
    if row.writing:
        row.end_turn(pool)
    _feed(row)


def _feed(row: EpisodeRow) -> None:
    while row.queue:
        row.take_queued()
