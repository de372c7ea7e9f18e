"""An update's metrics, from the records of its episodes; those of the importance correction: train/importance.py."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, get_args

from sqale_grpo.curriculum.buckets import NAMES
from sqale_grpo.env.episode import EndedBy

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
