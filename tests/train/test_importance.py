"""Figures of the importance correction, by hand."""

import math

import pytest
import torch

from sqale_grpo.train.metrics import ratio_metrics

WRITTEN = torch.tensor([[1, 1, 0], [1, 0, 0], [1, 1, 1]])


def figures(trained, sampled, cap=3.0, masks=None, written=WRITTEN):
    return ratio_metrics(torch.tensor(trained), torch.tensor(sampled), written, cap, masks, lambda rows: rows)


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


def test_a_token_without_a_probability_counts_as_equal():
    sampled = [[-1.0, math.nan, 0.0], [-3.0, 0.0, 0.0], [-0.5, -0.5, -0.5]]
    trained = [[-1.0, -2.0, 0.0], [-3.0, 0.0, 0.0], [-0.5, -0.5, -0.5]]
    assert figures(trained, sampled)["importance/sequence_ratio_max"] == 1.0
