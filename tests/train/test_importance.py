"""Figures of the importance correction, by hand."""

import math

import pytest
import torch

from sqale_grpo.train.importance import effective_share, off_policy_metrics

WRITTEN = torch.tensor([[1, 1, 0], [1, 0, 0], [1, 1, 1]])


def figures(trained, sampled, cap=3.0, masks=None, written=WRITTEN, level=None):
    trained, sampled = (torch.as_tensor(each) for each in (trained, sampled))
    level = level or masks or "sequence"
    return off_policy_metrics(trained, sampled, written, cap, level, masks is not None, lambda rows: rows)


def test_equal_probabilities_need_no_correction():
    same = [[-1.0, -2.0, -9.0], [-3.0, 0.0, 0.0], [-0.5, -0.5, -0.5]]
    found = figures(same, same)
    assert found["importance/sequence_ratio_min"] == found["importance/sequence_ratio_max"] == 1.0
    assert found["importance/token_kl"] == found["importance/sequences_over_cap"] == 0.0


def test_ratios_are_of_whole_sequences_and_of_written_tokens_only():
    sampled = [[-1.0, -2.0, 0.0], [-3.0, 0.0, 0.0], [-0.5, -0.5, -0.5]]
    trained = [[-0.9, -1.8, 5.0], [-5.0, 5.0, 5.0], [-0.1, -0.1, -0.1]]
    found = figures(trained, sampled)
    assert found["importance/sequence_ratio_max"] == pytest.approx(math.exp(1.2), rel=1e-5)
    assert found["importance/sequence_ratio_min"] == pytest.approx(math.exp(-2.0), rel=1e-5)
    assert found["importance/sequences_over_cap"] == pytest.approx(1 / 3)  # no token of it is over the cap by itself
    assert found["importance/tokens_over_cap"] == 0.0
    tokens = [0.1, 0.2, -2.0, 0.4, 0.4, 0.4]
    expected = sum(math.exp(d) - 1 - d for d in tokens) / 6
    assert found["importance/token_kl"] == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize(("masks", "share"), [(None, 0.0), ("sequence", 1 / 3), ("token", 1 / 6)])
def test_what_a_correction_masks_is_told(masks, share):
    sampled = [[-1.0, -2.0, 0.0], [-3.0, 0.0, 0.0], [-0.5, -0.5, -0.5]]
    trained = [[-1.0, -0.5, 0.0], [-3.0, 0.0, 0.0], [-0.5, -0.5, -0.5]]
    found = figures(trained, sampled, masks=masks)
    assert found["importance/masked_ratio_share"] == pytest.approx(share)
    assert found["importance/sequences_over_cap"] == pytest.approx(1 / 3)
    assert found["importance/tokens_over_cap"] == pytest.approx(1 / 6)


def many(gap: float, tokens: int, episodes: int = 4_000) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-probabilities of a sampler whose own they are: the ratio's mean is 1. Summed up, a token a hundred."""
    deviation = gap * math.sqrt(math.pi / 2) * math.sqrt(tokens / 20)
    drawn = torch.randn(episodes, 20, generator=torch.Generator().manual_seed(3)).double() * deviation
    return drawn - deviation**2 / 2 - 1, torch.full((episodes, 20), -1.0).double()


@pytest.mark.parametrize(("gap", "tokens"), [(0.012, 3_000), (0.018, 6_000), (0.025, 6_000)])
def test_ratios_over_the_cap_are_never_most_of_them(gap, tokens):
    """Markov: for true probabilities of the sampler P(ratio > 3) is 1/3 at most; most weights are small instead."""
    trained, sampled = many(gap, tokens)
    found = figures(trained, sampled, written=torch.ones(len(trained), 20))
    assert found["importance/sequences_over_cap"] < 1 / 3
    variance = (trained - sampled).sum(1).var().item()
    assert found["importance/effective_share"] == pytest.approx(effective_share(variance, 3.0), rel=0.15)
    assert found["importance/weight_median"] == pytest.approx(math.exp(-variance / 2), rel=0.15)
    if (gap, tokens) == (0.018, 6_000):  # what 400,000 draws gave
        assert found["importance/weight_under_half"] == pytest.approx(0.68, abs=0.03)
        assert found["importance/effective_share"] == pytest.approx(0.33, abs=0.03)


def test_long_episodes_weigh_less_and_it_shows():
    lengths = torch.tensor([10, 40, 100, 400]).repeat_interleave(100)
    written = (torch.arange(400) < lengths[:, None]).long()
    drawn = torch.randn(400, 400, generator=torch.Generator().manual_seed(4)) * 0.08 - 0.08**2 / 2
    found = figures(drawn * written, torch.zeros(400, 400), written=written)
    quarters = [found[f"importance/weight_length_quarter_{n}"] for n in (1, 2, 3, 4)]
    assert quarters[0] > 0.9 and quarters[3] < quarters[0] - 0.1
    assert found["importance/gap_from_0"] == pytest.approx(0.08 * math.sqrt(2 / math.pi), rel=0.05)
    assert "importance/gap_from_256" in found and "importance/gap_from_1024" not in found


def test_a_difference_that_grows_with_the_position_shows_where():
    written = torch.ones(3, 2_000).long()
    trained = torch.where(torch.arange(2_000) < 1_024, 0.001, 0.2).expand(3, 2_000)
    found = figures(trained, torch.zeros(3, 2_000), written=written)
    assert found["importance/gap_from_0"] == found["importance/gap_from_256"] == pytest.approx(0.001)
    assert found["importance/gap_from_1024"] == pytest.approx(0.2)


def test_the_effective_share_by_hand():
    sampled = [[0.0, 0.0, 0.0]] * 3
    weights = torch.tensor([1.0, 0.6, 4.0])
    trained = torch.zeros(3, 3)
    trained[:, 0] = weights.log()
    cut, masked = (figures(trained, sampled, masks=masks) for masks in (None, "sequence"))
    assert cut["importance/effective_share"] == pytest.approx(4.6**2 / (3 * (1 + 0.36 + 9)))
    assert masked["importance/effective_share"] == pytest.approx(1.6**2 / (3 * 1.36))
    assert masked["importance/weight_under_half"] == pytest.approx(1 / 3) and cut["importance/weight_median"] == 1.0
    token = figures(trained, sampled, level="token")
    assert token["importance/effective_share"] == pytest.approx((4.6 + 3) ** 2 / (6 * (1 + 0.36 + 9 + 3)))
