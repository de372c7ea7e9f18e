"""Lockstep decoding with transformers: many episodes at once, token in, token out.

Every step feeds each row one token: the one it has just sampled, or the next of its queued tool text. So no pad ever
stands inside a sequence, which a gated delta net would carry into its state (continuing with ragged turns and pads
changes Qwen3.5's logits by 3.4). Rows are left-padded once, for the prompt. Tools run in threads while the chat
frame's first tokens are fed.
"""

import inspect
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import torch

from sqale_grpo.env.episode import Episode
from sqale_grpo.rollout.cache import growing_cache
from sqale_grpo.rollout.chat import ChatFrame
from sqale_grpo.rollout.row import EpisodeRow
from sqale_grpo.rollout.sampling import Uniforms, sample
from sqale_grpo.rollout.tokens import EpisodeTokens, RolloutStats
from sqale_grpo.settings.sampling import Sampling

COMPACT_SHARE = 8  # drop finished rows once they are an eighth of the batch: each drop copies the cache


class _Row(EpisodeRow):
    """An episode with its own random stream."""

    def __init__(self, episode: Episode, key: int, frame: ChatFrame, sampling: Sampling) -> None:
        super().__init__(episode, frame, sampling)
        self.uniforms = Uniforms(key)


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
    inner = getattr(model, "get_base_model", lambda: model)()  # LoRA's wrapper does not name all arguments
    cache_name = "cache" if "cache" in inspect.signature(inner.forward).parameters else "past_key_values"
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
