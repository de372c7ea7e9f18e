"""Rewards with a part left out."""

import pytest

from sqale_grpo.reward import Outcome, RewardParts, ablated
from sqale_grpo.reward.score import executable_reward

OUTCOMES = {
    "equivalent": Outcome("equivalent", 3.0, f1=1.0, join_share=1.0),
    "executable": Outcome("executable", executable_reward(0.5, 1.0, agrees=True), f1=0.5, join_share=1.0, agrees=True),
    "parsable": Outcome("parsable", 0.5, error="schema"),
    "invalid": Outcome("invalid", 0.0),
}


@pytest.mark.parametrize(
    ("parts", "rewards"),
    [
        (RewardParts(), (3.0, 1.65, 0.5, 0.0)),
        (RewardParts(bonuses=False), (3.0, 1.45, 0.5, 0.0)),
        (RewardParts(partial_credit=False), (3.0, 0.0, 0.0, 0.0)),
        (RewardParts(partial_credit=False, bonuses=False), (3.0, 0.0, 0.0, 0.0)),
    ],
)
def test_each_part_takes_its_own_share_of_the_reward(parts, rewards):
    for outcome, wanted in zip(OUTCOMES.values(), rewards, strict=True):
        left = ablated(outcome, parts)
        assert left.reward == pytest.approx(wanted, abs=1e-6)
        assert (left.tier, left.f1, left.agrees) == (outcome.tier, outcome.f1, outcome.agrees)


def test_rewards_stay_exact_sums():
    """Equal rewards of a group must have an advantage of exactly 0 in 32-bit floats."""
    for f1 in (1 / 3, 0.7, 2 / 7):
        wrong = Outcome("executable", executable_reward(f1, 0.0, agrees=False), f1=f1, join_share=0.0)
        assert (ablated(wrong, RewardParts(bonuses=False)).reward * 2**20).is_integer()
