"""The supervised warm start of the demo policy, in three stages kept apart: copying, careful traces, imperfect traces.

Mixed from the start, a tiny model never learns to copy names; in this order it does within a minute or two. The last
stage skips look-ups, so that the policy calls tools but is often wrong: what GRPO is there to mend.
"""

import math
import random
import time
from collections.abc import Callable, Iterator, Sequence

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from sqale_grpo.corpus.demo_words import TEXT_CONCEPTS
from sqale_grpo.demo.model import SPECIAL_TOKENS
from sqale_grpo.env.chance import rng
from sqale_grpo.settings.demo_policy import DemoPolicyConfig

Tokens = tuple[list[int], list[int]]
Batches = Iterator[tuple[torch.Tensor, torch.Tensor]]
COPY_TOKENS = 24
VALUES = 4  # of a list in the recall stage
CODED_LISTS = 0.75  # share of the lists whose values have codes
RISE_STEPS = 30
SMOOTHING = 0.9


def masked_loss(model: PreTrainedModel, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Mean cross-entropy of the tokens of ``ids`` (rows, tokens), weighted by ``mask``: 0 where the policy wrote none.

    The head runs on the written positions alone: most of a trace is tool text.
    """
    wanted = mask[:, 1:] > 0
    hidden = model.model(input_ids=ids).last_hidden_state[:, :-1][wanted]
    losses = torch.nn.functional.cross_entropy(model.lm_head(hidden), ids[:, 1:][wanted], reduction="none")
    weights = mask[:, 1:][wanted].to(losses.dtype)
    return (losses * weights).sum() / weights.sum()


def pad(batch: Sequence[Tokens]) -> tuple[torch.Tensor, torch.Tensor]:
    """Right-padded ids and mask, each (rows, tokens)."""
    width = max(len(ids) for ids, _ in batch)
    ids = torch.zeros(len(batch), width, dtype=torch.long)
    mask = torch.zeros(len(batch), width, dtype=torch.long)
    for row, (tokens, written) in enumerate(batch):
        ids[row, : len(tokens)] = torch.tensor(tokens)
        mask[row, : len(written)] = torch.tensor(written)
    return ids, mask


def copy_batches(vocabulary: int, rows: int, generator: torch.Generator) -> Batches:
    """Random tokens twice over; the second half is to be predicted."""
    while True:
        half = torch.randint(5, vocabulary, (rows, COPY_TOKENS), generator=generator)
        ids = torch.cat([half, half], 1)
        mask = torch.zeros_like(ids)
        mask[:, COPY_TOKENS:] = 1
        yield ids, mask


def recall_batches(tokenizer: PreTrainedTokenizerBase, rows: int, most_gap: int, chance: random.Random) -> Batches:
    """A word as a question states it, a list of values as ``distinct_values`` shows it, then each value in SQL.

    Predicted is what follows each word in SQL: its code in the list, or the closing quote. Random tokens stand between,
    as many as chance wants: place does not find the code, only the word does.
    """

    def tokens(text: str) -> list[int]:
        return tokenizer(text, add_special_tokens=False)["input_ids"]

    words = {word: tokens(word) for _, values in TEXT_CONCEPTS.values() for word in values}
    codes, line, equals, quote = [tokens(str(code)) for code in range(1, 10)], tokens("\n"), tokens(" = '"), tokens("'")

    def gap() -> list[int]:
        return [chance.randrange(len(SPECIAL_TOKENS), len(tokenizer)) for _ in range(chance.randint(0, most_gap))]

    def row() -> Tokens:
        chosen = chance.sample(chance.choice(list(TEXT_CONCEPTS.values()))[1], VALUES)
        coded = chance.random() < CODED_LISTS
        values = [(words[word], chance.choice(codes) if coded else []) for word in chosen]
        ids = gap() + words[chance.choice(chosen)] + gap()
        ids += [token for word, code in values for token in line + word + code] + line
        mask = [0] * len(ids)
        for word, code in chance.sample(values, VALUES):
            before = gap() + equals + word
            ids += before + code + quote
            mask += [0] * len(before) + [1] * (len(code) + len(quote))
        return ids, mask

    while True:
        yield pad([row() for _ in range(rows)])


def alternating(*streams: Batches) -> Batches:
    """A batch of each stream in turn."""
    for batches in zip(*streams, strict=True):
        yield from batches


def trace_batches(traces: Sequence[Tokens], rows: int, *key: int | str) -> Batches:
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
    """One pair of optimizers over the stages: Muon for the matrices, AdamW for embeddings, norms and convolutions.

    With AdamW alone the same loss takes twice the steps. The learning rates rise over the first steps, stay up while
    copying, then fall linearly to the end of the last stage.
    """

    def __init__(self, model: PreTrainedModel, policy: DemoPolicyConfig, report: Callable[[str], None]) -> None:
        self.model, self.report = model, report
        matrices = [p for name, p in model.named_parameters() if p.ndim == 2 and "embed" not in name]
        others = [p for name, p in model.named_parameters() if p.ndim != 2 or "embed" in name]
        self.optimizers = [
            (torch.optim.Muon(matrices, lr=policy.muon_rate, weight_decay=0.01), policy.muon_rate),
            (
                torch.optim.AdamW(others, lr=policy.learning_rate, betas=(0.9, 0.98), weight_decay=0.01),
                policy.learning_rate,
            ),
        ]
        self.step = 0

    def stage(
        self,
        name: str,
        batches: Batches,
        steps: int,
        fall: tuple[float, float],
        until: float | None = None,
    ) -> float:
        """Train up to ``steps`` steps, or until the smoothed loss is under ``until``; returns the smoothed loss.

        ``fall`` is the share of the learning rates' fall that is done at the stage's begin and end.
        """
        smoothed, done, started = math.inf, 0, time.monotonic()
        self.model.train()
        for done in range(1, steps + 1):
            loss = self.update(*next(batches), 1.0 - fall[0] - (fall[1] - fall[0]) * (done - 1) / steps)
            smoothed = loss if smoothed == math.inf else SMOOTHING * smoothed + (1 - SMOOTHING) * loss
            if done % 50 == 0:
                self.report(f"{name}: step {done}, loss {smoothed:.4f}, {time.monotonic() - started:.0f} s")
            if until is not None and done > 50 and smoothed < until:
                break
        self.report(f"{name}: done after {done} steps, loss {smoothed:.4f}, {time.monotonic() - started:.0f} s")
        return smoothed

    def update(self, ids: torch.Tensor, mask: torch.Tensor, rate: float) -> float:
        """One step at ``rate`` times the peak learning rates; returns the loss."""
        loss = masked_loss(self.model, ids, mask)
        for optimizer, peak in self.optimizers:
            optimizer.zero_grad()
            for group in optimizer.param_groups:
                group["lr"] = peak * min(1.0, (self.step + 1) / RISE_STEPS) * max(rate, 0.02)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        for optimizer, _ in self.optimizers:
            optimizer.step()
        self.step += 1
        return loss.item()
