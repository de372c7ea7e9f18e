"""Which episodes an update passes together."""

from typing import Any

import torch
from trl.trainer.utils import split_tensor_dict


def by_length(batch: dict[str, Any], passes: int) -> list[dict[str, Any]]:
    """``batch`` (tensors with a row an episode, or a number) in ``passes`` micro-batches, the shortest episodes first.

    TRL splits at random; neighbours in length carry little padding. The gradient is the sum over all micro-batches of
    an update, so their order is free; but for ``bnpo``, which divides by the tokens of each micro-batch.
    """
    lengths = batch["prompt_mask"].sum(1) + batch["completion_mask"].sum(1)
    order = torch.argsort(lengths, stable=True)
    ordered = {
        name: value[order] if isinstance(value, torch.Tensor) and value.dim() else value
        for name, value in batch.items()
    }
    return split_tensor_dict(ordered, passes)
