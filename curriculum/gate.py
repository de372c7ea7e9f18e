"""Submit gate: whether an episode refuses ``submit_sql`` until the same query has been run."""

from env.chance import rng


def gate_probability(update: int, start: float = 1.0, updates: int = 80) -> float:
    """Probability that an episode of ``update`` is gated: linear from ``start`` at 0 to 0 at ``updates`` (card)."""
    if update >= updates:
        return 0.0
    return start * (1.0 - update / updates)


def gate_closed(seed: int, update: int, question_id: str, candidate: int, probability: float) -> bool:
    """Whether candidate number ``candidate`` of a question is gated: one draw an episode, equal on every process."""
    return rng("gate", seed, update, question_id, candidate).random() < probability
