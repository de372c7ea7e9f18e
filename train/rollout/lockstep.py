"""Lockstep decoding with transformers: many episodes at once, token in, token out.

Every step feeds each row one token: the one it has just sampled, or the next of its queued tool text. So no pad ever
stands inside a sequence, which a gated delta net would carry into its state (continuing with ragged turns and pads
changes Qwen3.5's logits by 3.4). Rows are left-padded once, for the prompt. Tools run in threads while the chat
frame's first tokens are fed.
"""

import inspect
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

import torch

from env.episode import Episode, Finished
from train.rollout.cache import growing_cache
from train.rollout.chat import ChatFrame
from train.rollout.sampling import Sampling, Uniforms, sample

COMPACT_SHARE = 8  # drop finished rows once they are an eighth of the batch: each drop copies the cache


@dataclass
class EpisodeTokens:
    """One episode as tokens: what TRL takes from a rollout.

    ``env_mask`` is 1 where the policy wrote the token, 0 for tool text and chat frame, where the log-probability is 0.
    """

    prompt_ids: list[int]
    completion_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    env_mask: list[int] = field(default_factory=list)

    def append(self, token: int, logprob: float = 0.0, written: int = 0) -> None:
        """Add one token to the completion."""
        self.completion_ids.append(token)
        self.logprobs.append(logprob)
        self.env_mask.append(written)

    def __len__(self) -> int:
        return len(self.prompt_ids) + len(self.completion_ids)


@dataclass
class RolloutStats:
    """What a rollout cost: decode steps, and seconds spent waiting for tools and in all."""

    decode_steps: int = 0
    tool_seconds: float = 0.0
    seconds: float = 0.0


class _Row:
    """One episode on its way through the decoder."""

    def __init__(self, episode: Episode, key: int, frame: ChatFrame, sampling: Sampling) -> None:
        self.episode = episode
        self.tokens = EpisodeTokens(frame.prompt_ids(episode.prompt()))
        self.uniforms = Uniforms(key)
        self.frame = frame
        self.sampling = sampling
        self.turn: list[int] = []
        self.queue: deque[int] = deque()  # tokens to feed that the policy did not write
        self.pending: Future | None = None  # the turn's tools, running
        self.done = False
        if len(self.tokens) + 1 >= sampling.max_episode_tokens:
            # One long question must not end a run: its episodes end before their first turn, and the record says so.
            episode.stop("token_budget")
            self.tokens.append(frame.stop_id)
            self.done = True

    def take_sample(self, token: int, logprob: float, pool: ThreadPoolExecutor) -> int:
        """Record a sampled token; at the turn's end start its tools. Returns the token to feed next."""
        self.tokens.append(token, logprob, 1)
        self.turn.append(token)
        if token in self.frame.stop_ids or len(self.turn) >= self.sampling.max_turn_tokens:
            if token != self.frame.stop_id:
                self.queue.append(self.frame.stop_id)
            self.queue.extend(self.frame.before_user_ids)
            self.pending = pool.submit(self.episode.step, self.frame.decode(self.turn))
            self.turn = []
        elif len(self.tokens) + 1 >= self.sampling.max_episode_tokens:
            self.stop()
        return token

    def take_queued(self) -> int:
        """The next token of the tool text."""
        token = self.queue.popleft()
        self.tokens.append(token)
        return token

    def resolve(self) -> None:
        """Wait for the turn's tools and queue their text; ends the row where the episode ended or its budget would."""
        assert self.pending is not None
        answer = self.pending.result()
        self.pending = None
        if isinstance(answer, Finished):
            self.drop_frame()
            return
        ids = self.frame.rest_of_user_turn_ids(answer.text)
        # One token for the policy's own next turn and one to end it must fit too.
        if len(self.tokens) + len(ids) + 2 > self.sampling.max_episode_tokens:
            self.drop_frame()
            self.episode.stop("token_budget")
            return
        self.queue.extend(ids)

    def drop_frame(self) -> None:
        """The episode is over: the frame's tokens that were fed ahead are not part of it."""
        ahead = len(self.frame.before_user_ids)
        tokens = self.tokens
        for kept in (tokens.completion_ids, tokens.logprobs, tokens.env_mask):
            del kept[len(kept) - ahead :]
        self.done = True

    def stop(self) -> None:
        """The token budget is used up in the middle of a turn."""
        self.episode.stop("token_budget", self.frame.decode(self.turn))
        self.tokens.append(self.frame.stop_id)
        self.done = True


@torch.no_grad()
def play(
    model: torch.nn.Module,
    frame: ChatFrame,
    episodes: Sequence[Episode],
    keys: Sequence[int],
    sampling: Sampling,
    pool: ThreadPoolExecutor,
    stats: RolloutStats | None = None,
) -> list[EpisodeTokens]:
    """Play all ``episodes`` to their end with ``model`` and return their tokens in the same order.

    ``keys`` are 64-bit integers that fix each episode's token sampling. The model is put into evaluation mode and back.
    Where a turn or an episode ends without ``<|im_end|>``, that token is added, masked, as TRL's trainer wants it.
    """
    started = time.monotonic()
    stats = stats or RolloutStats()
    was_training = model.training
    model.eval()
    try:
        rows = [_Row(episode, key, frame, sampling) for episode, key in zip(episodes, keys, strict=True)]
        playing = [row for row in rows if not row.done]
        if playing:
            _decode(model, playing, sampling, pool, stats)
    finally:
        model.train(was_training)
    stats.seconds += time.monotonic() - started
    return [row.tokens for row in rows]


def _decode(
    model: torch.nn.Module, rows: list[_Row], sampling: Sampling, pool: ThreadPoolExecutor, stats: RolloutStats
) -> None:
    device = next(model.parameters()).device
    pad = rows[0].frame.stop_id
    width = max(len(row.tokens) for row in rows)
    ids = torch.full((len(rows), width), pad)
    mask = torch.zeros((len(rows), width), dtype=torch.long)
    for i, row in enumerate(rows):
        ids[i, width - len(row.tokens) :] = torch.tensor(row.tokens.prompt_ids)
        mask[i, width - len(row.tokens) :] = 1
    ids, mask = ids.to(device), mask.to(device)
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    cache = growing_cache(model.config)
    # Newer releases of transformers call the argument `cache` for some models, and warn about the older name.
    cache_name = "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"
    while True:
        logits = model(
            input_ids=ids,
            attention_mask=mask,
            position_ids=positions,
            use_cache=True,
            logits_to_keep=1,
            **{cache_name: cache},
        ).logits[:, -1]
        stats.decode_steps += 1
        feed = _advance(rows, logits, sampling, pool, stats)
        kept = [i for i, row in enumerate(rows) if not row.done]
        if not kept:
            return
        positions = positions[:, -1:] + 1
        if (len(rows) - len(kept)) * COMPACT_SHARE >= len(rows):
            index = torch.tensor(kept, device=device)
            cache.reorder_cache(index)
            mask, positions = mask[index], positions[index]
            rows, feed = [rows[i] for i in kept], [feed[i] for i in kept]
        ids = torch.tensor(feed, device=device).unsqueeze(1)
        mask = torch.cat([mask, mask.new_ones(len(rows), 1)], 1)


def _advance(
    rows: list[_Row], logits: torch.Tensor, sampling: Sampling, pool: ThreadPoolExecutor, stats: RolloutStats
) -> list[int]:
    """One token for every row; finished rows are fed anything until they are dropped."""
    waited = time.monotonic()
    for row in rows:
        if row.pending is not None and not row.queue:
            row.resolve()
    stats.tool_seconds += time.monotonic() - waited
    writing = [i for i, row in enumerate(rows) if not row.done and not row.queue]
    feed = [row.frame.stop_id for row in rows]
    if writing:
        uniforms = torch.tensor([rows[i].uniforms.next() for i in writing], device=logits.device)
        tokens, logprobs = sample(logits[writing], uniforms, sampling)
        for i, token, logprob in zip(writing, tokens.tolist(), logprobs.tolist(), strict=True):
            feed[i] = rows[i].take_sample(token, logprob, pool)
    writing_set = set(writing)
    for i, row in enumerate(rows):
        if row.queue and not row.done and i not in writing_set:
            feed[i] = row.take_queued()
    return feed
