"""The importance correction's figures: how far the sampler's probabilities are from the trainer's, before any cap.

vLLM computes in another order and precision than the trainer. The loss multiplies by the ratio of the two policies,
capped; TRL reports the capped ratio, which hides how often the cap bites. Long episodes reach a sequence-level cap
almost always (TRL issue 4772), so the share is reported, and a correction that masks says what it masked.
"""

from collections.abc import Callable

import torch


def ratio_metrics(
    trained: torch.Tensor,
    sampled: torch.Tensor,
    written: torch.Tensor,
    cap: float,
    masks: str | None,
    gather: Callable[[torch.Tensor], torch.Tensor],
) -> dict[str, float]:
    """Ratios trainer/sampler over all processes' episodes.

    ``trained`` and ``sampled``: log-probabilities (episodes, tokens); ``written``: 1 where the policy wrote the token.
    ``masks``: ``sequence`` or ``token`` where ratios of that level over ``cap`` are set to 0, None where they are cut
    to it. ``gather`` collects rows of all processes (accelerate's). A token whose sampling log-probability is not a
    number counts as equal, as in the loss.
    """
    difference = torch.nan_to_num((trained - sampled) * written, nan=0.0).double()
    sums, tokens = gather(difference.sum(1)), gather(written.sum(1)).double()
    over = gather(((difference > torch.tensor(cap).log()) * written).sum(1)).double()
    # k3 of KL(sampler || trainer): unbiased, never negative, of the order of the squared differences.
    k3 = gather(((difference.exp() - 1 - difference) * written).sum(1))
    ratios, written_tokens = sums.exp(), tokens.sum().clamp(min=1)
    over_cap = {"sequence": (ratios > cap).double().mean().item(), "token": (over.sum() / written_tokens).item()}
    return {
        "importance/sequence_ratio_mean": ratios.mean().item(),
        "importance/sequence_ratio_min": ratios.min().item(),
        "importance/sequence_ratio_max": ratios.max().item(),
        "importance/sequences_over_cap": over_cap["sequence"],
        "importance/tokens_over_cap": over_cap["token"],
        "importance/masked_ratio_share": over_cap[masks] if masks else 0.0,
        "importance/token_kl": (k3.sum() / written_tokens).item(),
    }
