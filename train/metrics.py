"""An update's metrics, from the records of its episodes.

The importance correction's figures: how far the sampler's probabilities are from the trainer's, before any cap.

vLLM computes in another order and precision than the trainer. The loss multiplies by the ratio of the two policies,
capped; TRL reports the capped ratio, which hides how often the cap bites. Long episodes reach a sequence-level cap
almost always (TRL issue 4772), so the share is reported, and a correction that masks says what it masked.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, get_args

from sqale_grpo.curriculum.buckets import NAMES
from sqale_grpo.env.episode import EndedBy

if TYPE_CHECKING:
    import torch  # only an update's ratios need it; the report's records do without

# TRL's metrics that are means over the tokens of one pass.
TOKEN_MEANS = (
    "kl",
    "entropy",
    "clip_ratio/low_mean",
    "clip_ratio/high_mean",
    "clip_ratio/region_mean",
    "sampling/logp_difference",
)


def update_metrics(records: list[dict[str, Any]], group: int) -> dict[str, float]:
    """Rates and means over an update's episodes; names as in the authors' dashboards where they have one.

    ``records``: rows as ``rollout.record`` writes them, with rounds and calls; the ``group`` candidates of a
    question stand together.
    """
    n = len(records)
    tiers = Counter(r["tier"] for r in records)
    metrics = {f"{tier}_rate": tiers[tier] / n for tier in ("equivalent", "executable", "parsable", "invalid", "void")}
    metrics["lucky_rate"] = sum(r["copy"] is not None for r in records) / n
    metrics |= {
        "rounds": sum(r["rounds"] for r in records) / n,
        "tool_calls": sum(r["calls"] for r in records) / n,
        "gate_rate": sum(r["gated"] for r in records) / n,
        "written_tokens": sum(r["written_tokens"] for r in records) / n,
        "episode_tokens": sum(_tokens(r) for r in records) / n,
        "episode_tokens_max": max(_tokens(r) for r in records),
        "tables": sum(len(r["tables"]) for r in records) / n,
    }
    # Every name at every update, also with 0: a curve without gaps.
    for column, names in (("ended_by", get_args(EndedBy)), ("bucket", NAMES)):
        counts = Counter(r[column] for r in records)
        metrics |= {f"{column}/{name}": counts[name] / n for name in names}
    metrics["zero_variance_groups"] = sum(equal_groups([r["reward"] for r in records], group)) / n
    return metrics


def equal_groups(rewards: Sequence[float | None], group: int) -> list[bool]:
    """For each member whether its group's rewards are all equal; the ``group`` members of one stand together.

    A void candidate has no reward; a group of void ones teaches nothing either.
    """
    equal = [len(set(rewards[start : start + group]) - {None}) <= 1 for start in range(0, len(rewards), group)]
    return [each for each in equal for _ in range(group)]


def weigh_by_tokens(metrics: dict[str, list[float]], tokens: list[float]) -> None:
    """Replace each of TRL's means over tokens, a value a pass, by the mean over the update's tokens, in place.

    Passes hold unequal numbers of tokens, sorted by length as they are: a mean of their means counts the tokens of
    short episodes several times. ``tokens``: those that the policy wrote, a pass.
    """
    for name in TOKEN_MEANS:
        values = metrics.get(name, [])
        if len(values) == len(tokens) and sum(tokens) > 0:
            metrics[name] = [sum(v * t for v, t in zip(values, tokens, strict=True) if t > 0) / sum(tokens)]


def _tokens(record: dict[str, Any]) -> int:
    return record["prompt_tokens"] + record["completion_tokens"]


def ratio_metrics(
    trained: "torch.Tensor",
    sampled: "torch.Tensor",
    written: "torch.Tensor",
    cap: float,
    masks: str | None,
    gather: "Callable[[torch.Tensor], torch.Tensor]",
) -> dict[str, float]:
    """Ratios trainer/sampler over all processes' episodes.

    ``trained`` and ``sampled``: log-probabilities (episodes, tokens); ``written``: 1 where the policy wrote the token.
    ``masks``: ``sequence`` or ``token`` where ratios of that level over ``cap`` are set to 0, None where they are cut
    to it. ``gather`` collects rows of all processes (accelerate's). A token whose sampling log-probability is not a
    number counts as equal, as in the loss.
    """
    import torch

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
