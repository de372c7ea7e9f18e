"""The supervised warm start of the demo policy, in three stages kept apart: copying, careful traces, imperfect traces.

Mixed from the start, a tiny model never learns to copy names; in this order it does within a minute or two. The last stage
skips look-ups, so that the policy calls tools but is often wrong: what GRPO is there to mend.
"""

import math
import time
from collections.abc import Callable, Iterator, Sequence

import torch

from env.chance import rng
from train.config import PolicyConfig

Tokens = tuple[list[int], list[int]]
COPY_TOKENS = 24
RISE_STEPS = 30
SMOOTHING = 0.9


def masked_loss(model: torch.nn.Module, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Mean cross-entropy of the tokens of ``ids`` (rows, tokens) whose ``mask`` is 1.

    The head runs on those positions alone: most of a trace is tool text.
    """
    wanted = mask[:, 1:] > 0
    hidden = model.model(input_ids=ids).last_hidden_state[:, :-1][wanted]
    return torch.nn.functional.cross_entropy(model.lm_head(hidden), ids[:, 1:][wanted])


def pad(batch: Sequence[Tokens]) -> tuple[torch.Tensor, torch.Tensor]:
    """Right-padded ids and mask, each (rows, tokens)."""
    width = max(len(ids) for ids, _ in batch)
    ids = torch.zeros(len(batch), width, dtype=torch.long)
    mask = torch.zeros(len(batch), width, dtype=torch.long)
    for row, (tokens, written) in enumerate(batch):
        ids[row, : len(tokens)] = torch.tensor(tokens)
        mask[row, : len(written)] = torch.tensor(written)
    return ids, mask


def copy_batches(vocabulary: int, rows: int, generator: torch.Generator) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Random tokens twice over; the second half is to be predicted."""
    while True:
        half = torch.randint(5, vocabulary, (rows, COPY_TOKENS), generator=generator)
        ids = torch.cat([half, half], 1)
        mask = torch.zeros_like(ids)
        mask[:, COPY_TOKENS:] = 1
        yield ids, mask


def trace_batches(traces: Sequence[Tokens], rows: int, *key: int | str) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Batches of traces in seeded order, each trace once an epoch; neighbours in length stand together."""
    epoch = 0
    while True:
        chance = rng(*key, epoch)
        order = list(range(len(traces)))
        chance.shuffle(order)
        pools = [order[start : start + 8 * rows] for start in range(0, len(order), 8 * rows)]
        batches = []
        for pool in pools:
            pool.sort(key=lambda i: len(traces[i][0]))
            batches += [pool[start : start + rows] for start in range(0, len(pool), rows)]
        chance.shuffle(batches)
        for batch in batches:
            yield pad([traces[i] for i in batch])
        epoch += 1


class WarmStart:
    """One optimizer over the stages; the learning rate rises, stays up while copying, then falls as a cosine."""

    def __init__(self, model: torch.nn.Module, policy: PolicyConfig, report: Callable[[str], None]) -> None:
        self.model, self.policy, self.report = model, policy, report
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=policy.learning_rate, betas=(0.9, 0.98), weight_decay=0.01)
        self.step = 0

    def rate(self, progress: float) -> float:
        """Learning rate at ``progress`` (0 to 1) through the traces."""
        fall = max(0.05, 0.5 * (1 + math.cos(math.pi * min(1.0, progress))))
        return self.policy.learning_rate * min(1.0, (self.step + 1) / RISE_STEPS) * fall

    def stage(
        self,
        name: str,
        batches: Iterator[tuple[torch.Tensor, torch.Tensor]],
        steps: int,
        progress: tuple[float, float],
        until: float | None = None,
    ) -> float:
        """Train up to ``steps`` steps, or until the smoothed loss is under ``until``; returns the smoothed loss."""
        smoothed, started = math.inf, time.monotonic()
        self.model.train()
        done = 0
        for done in range(1, steps + 1):
            share = progress[0] + (progress[1] - progress[0]) * done / steps
            for group in self.optimizer.param_groups:
                group["lr"] = self.rate(share)
            loss = masked_loss(self.model, *next(batches))
            self.optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            self.step += 1
            smoothed = loss.item() if smoothed == math.inf else SMOOTHING * smoothed + (1 - SMOOTHING) * loss.item()
            if done % 50 == 0:
                self.report(f"{name}: step {done}, loss {smoothed:.4f}, {time.monotonic() - started:.0f} s")
            if until is not None and done > 50 and smoothed < until:
                break
        self.report(f"{name}: done after {done} steps, loss {smoothed:.4f}, {time.monotonic() - started:.0f} s")
        return smoothed
