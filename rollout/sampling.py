"""Token sampling that depends on the episode alone: temperature, top-k, top-p, and each episode's own random stream."""

import numpy as np
import torch

from sqale_grpo.settings.sampling import Sampling


class Uniforms:
    """An endless stream of uniform numbers in [0, 1), fixed by a 64-bit key (Philox, counter based).

    One a candidate, keyed by (seed, update, question, candidate): the same draws whatever the process count.
    """

    def __init__(self, key: int) -> None:
        self._generator = np.random.Generator(np.random.Philox(key=key))
        self._block: list[float] = []

    def next(self) -> float:
        """The next number of the stream."""
        if not self._block:
            self._block = self._generator.random(512).tolist()[::-1]
        return self._block.pop()


def sample(logits: torch.Tensor, uniforms: torch.Tensor, sampling: Sampling) -> tuple[torch.Tensor, torch.Tensor]:
    """One token a row by inverse transform; at temperature 0 the most likely one, with log-probability 0.

    ``logits`` (rows, vocabulary), ``uniforms`` (rows,) in [0, 1). Returns token ids (rows,) and their log-probabilities
    (rows,) under the temperature alone: what the trainer's forward computes, also where top-k or top-p truncated.
    """
    if sampling.temperature == 0:
        return logits.argmax(-1), logits.new_zeros(len(logits), dtype=torch.float32)
    log_probabilities = torch.log_softmax(logits.float() / sampling.temperature, -1)
    weights = log_probabilities.exp()
    if sampling.top_k or sampling.top_p < 1.0:
        weights = truncate(weights, sampling.top_k, sampling.top_p)
    cumulative = weights.cumsum(-1)
    targets = (uniforms * cumulative[:, -1]).unsqueeze(1)
    tokens = torch.searchsorted(cumulative, targets, right=True).squeeze(1)
    # Rounding can carry the target to the very end of the sum, where no token has weight.
    last = logits.shape[-1] - 1 - weights.flip(-1).ne(0).int().argmax(-1)
    tokens = torch.minimum(tokens, last)
    return tokens, log_probabilities.gather(-1, tokens.unsqueeze(1)).squeeze(1)


def truncate(weights: torch.Tensor, top_k: int, top_p: float) -> torch.Tensor:
    """Zero the probabilities (rows, vocabulary) outside the ``top_k`` largest and the smallest set with ``top_p``.

    As usual for both: top-k first, then top-p on what is left, renormalised; the token that crosses ``top_p`` stays.
    """
    size = weights.shape[-1]
    ordered, order = weights.topk(min(top_k, size) if top_k else size, dim=-1)
    ordered = ordered / ordered.sum(-1, keepdim=True)
    before = ordered.cumsum(-1) - ordered
    kept = torch.where(before < top_p, ordered, torch.zeros_like(ordered))
    return torch.zeros_like(weights).scatter(-1, order, kept)
