"""An update's metrics, by hand."""

import pytest

from sqale_grpo.train.metrics import equal_groups, update_metrics, weigh_by_tokens


def record(tier: str, reward: float, ended_by: str = "submit_sql", gated: bool = False) -> dict:
    return {
        "tier": tier,
        "reward": reward,
        "copy": 3 if tier == "executable" else None,
        "ended_by": ended_by,
        "gated": gated,
        "bucket": "short",
        "rounds": 3,
        "calls": 4,
        "written_tokens": 10,
        "prompt_tokens": 100,
        "completion_tokens": 20 if tier == "invalid" else 40,
        "tables": ["a", "b"],
    }


def test_rates_are_shares_of_the_episodes_and_no_name_is_missing():
    records = [
        record("equivalent", 3.0),
        record("equivalent", 3.0),
        record("executable", 1.5, "final_turn", gated=True),
        record("invalid", 0.0, "no_answer"),
    ]
    metrics = update_metrics(records, 2)
    assert (metrics["equivalent_rate"], metrics["executable_rate"], metrics["invalid_rate"]) == (0.5, 0.25, 0.25)
    assert metrics["parsable_rate"] == 0.0 and metrics["lucky_rate"] == 0.25
    assert metrics["gate_rate"] == 0.25
    assert (metrics["rounds"], metrics["tool_calls"], metrics["tables"]) == (3, 4, 2)
    assert metrics["ended_by/submit_sql"] == 0.5 and metrics["ended_by/token_budget"] == 0.0
    assert metrics["bucket/short"] == 1.0 and metrics["bucket/very_long"] == 0.0
    assert sum(value for name, value in metrics.items() if name.startswith("ended_by/")) == pytest.approx(1.0)
    assert (metrics["episode_tokens"], metrics["episode_tokens_max"]) == (135, 140)
    assert metrics["zero_variance_groups"] == 0.5  # the first group's two rewards are one


def test_a_mean_over_tokens_counts_every_token_once():
    metrics = {"entropy": [1.0, 4.0, float("nan")], "kl": [0.5, 0.0, 0.0], "reward": [2.0]}
    weigh_by_tokens(metrics, [30.0, 10.0, 0.0])
    assert metrics == {"entropy": [1.75], "kl": [0.375], "reward": [2.0]}


def test_groups_of_equal_rewards_are_known_member_by_member():
    assert equal_groups([1.5, 1.5, 1.5, 2.0, 3.0, 3.0], 2) == [True, True, False, False, True, True]
    assert equal_groups([1.5] * 12 + [1.5] * 11 + [1.6], 12) == [True] * 12 + [False] * 12
