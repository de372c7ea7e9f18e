"""Rewards with a part of them left out, to measure what the part is worth. The card's reward leaves out nothing."""

from dataclasses import dataclass, replace

from sqale_grpo.reward.score import BASE, EQUIVALENT, F1_WEIGHT, INVALID, STEP, Outcome


@dataclass(frozen=True)
class RewardParts:
    """``partial_credit``: a wrong answer earns something. ``bonuses``: joins along keys and agreement do."""

    partial_credit: bool = True
    bonuses: bool = True


def ablated(outcome: Outcome, parts: RewardParts) -> Outcome:
    """``outcome``, agreement known, with the reward that ``parts`` leave of it.

    Without partial credit 3.0 or 0; without bonuses an executable answer earns 1.0 + 0.9 F1.
    """
    if outcome.tier == "void":
        return outcome
    if not parts.partial_credit:
        return replace(outcome, reward=EQUIVALENT if outcome.tier == "equivalent" else INVALID)
    if not parts.bonuses and outcome.tier == "executable":
        assert outcome.f1 is not None
        return replace(outcome, reward=round((BASE + F1_WEIGHT * outcome.f1) / STEP) * STEP)
    return outcome
