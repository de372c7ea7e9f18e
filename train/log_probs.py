"""Log-probabilities of the tokens that the policy wrote, in passes that carry little padding."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch.nn.functional import pad


def written_log_probs(
    model: Any,
    input_ids: torch.Tensor,
    attention_mask: torch.Tensor,
    written: torch.Tensor,
    rows: int,
    autocast: Callable[[], AbstractContextManager],
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Log-probabilities and (where the model's head computes them) entropies, each of ``written``'s shape.

    ``input_ids``, ``attention_mask``: (sequences, prompt + completion tokens), prompts padded on the left, completions
    on the right. ``written`` (sequences, completion tokens): 1 where the policy wrote the token, 0 in padding too; the
    result is 0 there. ``model`` has TRL's fused head, which projects labelled positions alone. At most ``rows``
    sequences a pass, neighbours in length together, each pass cut to the columns that it uses.
    """
    order = attention_mask.sum(1).argsort(stable=True)
    passes = [_one_pass(model, input_ids[c], attention_mask[c], written[c], autocast) for c in order.split(rows)]
    back = order.argsort()
    logps = torch.cat([logps for logps, _ in passes])[back]
    entropies = [entropies for _, entropies in passes if entropies is not None]
    return logps, torch.cat(entropies)[back] if entropies else None


def _one_pass(
    model: Any,
    input_ids: torch.Tensor,
    attention_mask: torch.Tensor,
    written: torch.Tensor,
    autocast: Callable[[], AbstractContextManager],
) -> tuple[torch.Tensor, torch.Tensor | None]:
    prompt = input_ids.shape[1] - written.shape[1]
    used = attention_mask.any(0).nonzero()
    first, last = int(used[0]), int(used[-1]) + 1
    ids, mask = input_ids[:, first:last], attention_mask[:, first:last]
    labels = torch.full_like(ids, -100)
    kept = written[:, : last - prompt] > 0
    labels[:, prompt - first :][kept] = ids[:, prompt - first :][kept]
    with autocast():
        outputs = model(input_ids=ids, attention_mask=mask, labels=labels, fused_lm_head=True)

    def placed(values: torch.Tensor) -> torch.Tensor:
        # The head's column t is about token t + 1; the columns that were cut off on the right come back as 0.
        return pad(values[:, prompt - first - 1 :], (0, input_ids.shape[1] - last))

    return placed(outputs.log_probs), None if outputs.entropy is None else placed(outputs.entropy)
