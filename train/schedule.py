"""What changes from update to update: the learning rate and the reference anchors (mixture and gate: curriculum)."""

import math

from train.config import Config


def warmup_steps(config: Config) -> int:
    """Updates over which the learning rate rises."""
    return round(config.train.warmup_ratio * config.train.max_steps)


def learning_rate(config: Config, update: int) -> float:
    """The rate of ``update`` (the first is 0), equal to transformers' scheduler of that name: a warm-up starts at 0."""
    train, rise = config.train, warmup_steps(config)
    if train.lr_scheduler == "constant":
        return train.learning_rate
    if update < rise:
        return train.learning_rate * update / rise
    progress = (update - rise) / max(1, train.max_steps - rise)
    if train.lr_scheduler == "constant_with_warmup":
        return train.learning_rate
    if train.lr_scheduler == "linear":
        return train.learning_rate * max(0.0, 1 - progress)
    return train.learning_rate * max(0.0, 0.5 * (1 + math.cos(math.pi * progress)))


def anchors(config: Config) -> range:
    """Counts of completed updates after which the reference becomes a copy of the policy."""
    every = config.train.anchor_updates
    return range(every, config.train.max_steps + 1, every) if every else range(0)


def turning_points(config: Config) -> list[int]:
    """The updates at which a schedule starts, bends or ends, halves between them, and the last update."""
    curriculum = config.curriculum
    warm, ramp, gate = curriculum.warmup_updates, curriculum.ramp_updates, curriculum.gate_updates
    points = {0, gate // 2, gate, warm, warm + ramp // 2, warm + ramp}
    last = config.train.max_steps - 1
    return sorted({point for point in points if point < last} | {last})
