"""Mixture schedule: the share that each length bucket has in the batch of an update.

Submit gate: whether an episode refuses ``submit_sql`` until the same query has been run.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from sqale_grpo.env.chance import rng

SHORT_ONLY = (1.0, 0.0, 0.0, 0.0)


@dataclass(frozen=True)
class MixtureSchedule:
    """Shares of (short, medium, long, very_long) by update.

    Updates below ``warmup``: the short bucket only; over the next ``ramp`` updates: linear from ``start`` to
    ``end``; then ``end`` (card, "Length curriculum"). ``strength`` blends this with the corpus' ``natural``
    shares: 1 is the schedule, 0 no curriculum at all (card: "full" and "none"; a half is our assumption for
    the corpus whose strength the card cuts off).
    """

    warmup: int = 400
    ramp: int = 1000
    start: tuple[float, ...] = (0.40, 0.30, 0.20, 0.10)
    end: tuple[float, ...] = (0.15, 0.20, 0.25, 0.40)
    strength: float = 1.0
    natural: tuple[float, ...] = (0.50, 0.30, 0.15, 0.05)

    def __post_init__(self) -> None:
        if self.warmup < 0 or self.ramp < 0:
            raise ValueError(f"warmup and ramp are counts of updates, not {self.warmup} and {self.ramp}")
        if not 0.0 <= self.strength <= 1.0:
            raise ValueError(f"the curriculum's strength lies between 0 (none) and 1 (full), not {self.strength}")
        for name in ("start", "end", "natural"):
            _check_shares(name, getattr(self, name))

    @property
    def settled(self) -> int:
        """The first update from which on the mixture never changes."""
        return self.warmup + self.ramp

    def mixture(self, update: int) -> tuple[float, ...]:
        """Shares of the four buckets at ``update`` (the first is 0); they sum to 1."""
        scheduled = self._scheduled(update)
        if self.strength == 1.0:
            return scheduled
        return _blend(self.natural, scheduled, self.strength)

    def _scheduled(self, update: int) -> tuple[float, ...]:
        if update < 0:
            raise ValueError(f"updates count from 0, not {update}")
        if update < self.warmup:
            return SHORT_ONLY
        if update >= self.settled:
            return tuple(self.end)
        return _blend(self.start, self.end, (update - self.warmup) / self.ramp)


def _blend(first: Sequence[float], second: Sequence[float], weight: float) -> tuple[float, ...]:
    return tuple((1.0 - weight) * a + weight * b for a, b in zip(first, second, strict=True))


def _check_shares(name: str, shares: Sequence[float]) -> None:
    # Written so that a share that is no number fails, too.
    if len(shares) != len(SHORT_ONLY) or min(shares) < 0.0 or not abs(sum(shares) - 1.0) <= 1e-6:
        raise ValueError(f"the mixture's {name} must be {len(SHORT_ONLY)} shares that sum to 1, not {tuple(shares)}")


def gate_probability(update: int, start: float = 1.0, updates: int = 80) -> float:
    """Probability that an episode of ``update`` is gated: linear from ``start`` at 0 to 0 at ``updates`` (card)."""
    if update >= updates:
        return 0.0
    return start * (1.0 - update / updates)


def gate_closed(seed: int, update: int, question_id: str, candidate: int, probability: float) -> bool:
    """Whether candidate number ``candidate`` of a question is gated: one draw an episode, equal on every process."""
    return rng("gate", seed, update, question_id, candidate).random() < probability
