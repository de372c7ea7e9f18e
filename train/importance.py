"""Off-policy accounting: what is left of an update when its sampler is not quite the policy that is trained.

vLLM computes in another order and precision than the trainer. The loss multiplies by the ratio of the two policies,
with a cap; TRL reports the ratio behind the cap, which hides how often it bites and what length does.

The loss multiplies an episode's terms by w, the ratio of the trainer's probability of its tokens to the sampler's. For
a sampler that reports its own probabilities the mean of w is 1, so w is over c for at most 1/c of the episodes, at any
length (Markov): ratios over the cap are never most of them. What length does is on the other side: with differences of
deviation s a token, log w over T tokens has the mean -T s^2 / 2, so most long episodes weigh next to nothing and a few
carry the update. The effective share says how much of it is left.
"""

import math
from collections.abc import Callable, Sequence

import torch

HALF = 0.5
NOTHING_LEFT = 500.0  # variance of log w: the share is under 1e-20, and e^variance near the end of the numbers
# Tokens that the policy has written before one: a state that drifts shows as a difference that grows.
POSITIONS = ((0, 256), (256, 1_024), (1_024, 4_096), (4_096, None))
# A mean absolute difference is this much of the deviation, for a normal one.
MEAN_OF_ABSOLUTE = math.sqrt(2 / math.pi)


def effective_share(variance: float, cap: float | None = None, masked: bool = False) -> float:
    """(E w)^2 / E w^2 of ratios w whose logarithm is normal with ``variance`` and E w = 1: 1 where all weigh the same.

    Ratios over ``cap`` are cut to it, or, ``masked``, set to 0.
    """
    if variance <= 0:
        return 1.0
    if variance > NOTHING_LEFT:
        return 0.0
    deviation = math.sqrt(variance)
    if cap is None:
        return math.exp(-variance)
    edge = (math.log(cap) + variance / 2) / deviation  # where log w meets the cap, in deviations from its mean
    over = 0.0 if masked else 1.0 - _normal(edge)
    first = _normal(edge - deviation) + cap * over
    second = math.exp(variance) * _normal(edge - 2 * deviation) + cap * cap * over
    return first * first / second


def _normal(value: float) -> float:
    return 0.5 * math.erfc(-value / math.sqrt(2))


def off_policy_metrics(
    trained: torch.Tensor,
    sampled: torch.Tensor,
    written: torch.Tensor,
    cap: float,
    level: str,
    masks: bool,
    gather: Callable[[torch.Tensor], torch.Tensor],
) -> dict[str, float]:
    """Figures over all processes' episodes, under ``importance/``.

    ``trained`` and ``sampled``: log-probabilities (episodes, tokens); ``written``: 1 where the policy wrote the token.
    ``level``: ``sequence`` or ``token``, what has a weight; ``masks``: weights over ``cap`` are set to 0, else cut to
    it. ``gather`` collects rows of all processes (accelerate's).
    """
    difference = ((trained - sampled) * written).double()
    mask, counts = written.bool(), written.sum(1).double()
    over = ((difference > math.log(cap)) & mask).sum(1).double()
    # k3 of KL(sampler || trainer): unbiased, never negative, of the order of the squared differences.
    k3 = ((difference.exp() - 1 - difference) * written).sum(1)
    weights = corrected(difference.exp(), cap, masks) * written
    place = written.cumsum(1) - 1
    ranges = [mask & (place >= low) & (place < (high or written.shape[1])) for low, high in POSITIONS]
    apart = [(difference.abs() * each).sum(1) for each in ranges]
    columns = [difference.sum(1), counts, over, k3, weights.sum(1), (weights**2).sum(1)]
    columns += [((weights < HALF) & mask).sum(1).double(), *apart, *(each.sum(1).double() for each in ranges)]
    everywhere = gather(torch.stack(columns, 1))
    sums, counts, over, k3, total, squares, light, *by_place = everywhere.unbind(1)
    ratios, tokens = sums.exp(), counts.sum().clamp(min=1)
    used = corrected(ratios, cap, masks)
    over_cap = {"sequence": (ratios > cap).double().mean().item(), "token": (over.sum() / tokens).item()}
    figures = {
        "sequence_ratio_mean": ratios.mean().item(),
        "sequence_ratio_min": ratios.min().item(),
        "sequence_ratio_max": ratios.max().item(),
        "sequences_over_cap": over_cap["sequence"],
        "tokens_over_cap": over_cap["token"],
        "masked_ratio_share": over_cap[level] if masks else 0.0,
        "token_kl": (k3.sum() / tokens).item(),
        "weight_median": used.quantile(HALF).item(),
    }
    if level == "sequence":
        figures |= {"weight_under_half": (used < HALF).double().mean().item(), "effective_share": _share(used)}
    else:
        figures |= {
            "weight_under_half": (light.sum() / tokens).item(),
            "effective_share": (total.sum() ** 2 / (squares.sum().clamp(min=1e-300) * tokens)).item(),
        }
    figures |= {f"weight_length_quarter_{n}": mean for n, mean in enumerate(_by_length(used, counts), 1)}
    figures |= _by_position(by_place)
    return {f"importance/{name}": value for name, value in figures.items()}


def corrected(ratios: torch.Tensor, cap: float, masks: bool) -> torch.Tensor:
    """Ratios as the loss uses them."""
    return torch.where(ratios > cap, 0.0, ratios) if masks else ratios.clamp(max=cap)


def _share(weights: torch.Tensor) -> float:
    """(sum w)^2 / (N sum w^2): 1 where all weigh the same, 1/N where one has all."""
    return (weights.sum() ** 2 / ((weights**2).sum().clamp(min=1e-300) * len(weights))).item()


def _by_length(weights: torch.Tensor, lengths: torch.Tensor) -> list[float]:
    """The mean weight of the shortest quarter of the episodes, by tokens written, to the longest one."""
    parts = weights[lengths.argsort(stable=True)].tensor_split(4)
    return [part.mean().item() for part in parts if len(part)]


def _by_position(sums: Sequence[torch.Tensor]) -> dict[str, float]:
    """The mean absolute difference of tokens by how many the policy had written before; a range without tokens not."""
    half = len(sums) // 2
    found = {}
    for (low, _), apart, count in zip(POSITIONS, sums[:half], sums[half:], strict=True):
        if count.sum() > 0:
            found[f"gap_from_{low}"] = (apart.sum() / count.sum()).item()
    return found
