"""Token sampling: the right distribution, the usual truncation, and a stream that the episode alone fixes."""

import torch

from sqale_grpo.rollout.sampling import Uniforms, sample, truncate
from sqale_grpo.settings.sampling import Sampling


def test_frequencies_follow_the_softmax_at_the_temperature():
    logits = torch.tensor([[2.0, 1.0, 0.0, -1.0]])
    stream = Uniforms(7)
    uniforms = torch.tensor([stream.next() for _ in range(40_000)])
    tokens, logprobs = sample(logits.expand(len(uniforms), -1), uniforms, Sampling(temperature=0.5))
    expected = torch.softmax(logits[0] / 0.5, -1)
    shares = torch.bincount(tokens, minlength=4) / len(tokens)
    # Five standard errors of the largest share.
    assert (shares - expected).abs().max() < 5 * (0.25 / len(tokens)) ** 0.5
    assert torch.allclose(logprobs.exp(), expected[tokens], atol=1e-6)


def test_log_probability_ignores_the_truncation():
    logits = torch.tensor([[3.0, 2.0, 1.0, 0.0]])
    tokens, logprobs = sample(logits, torch.tensor([0.999999]), Sampling(temperature=1.0, top_k=2))
    assert tokens.item() == 1
    assert torch.allclose(logprobs, torch.log_softmax(logits, -1)[:, 1])


def test_truncation_keeps_the_token_that_crosses_top_p():
    weights = torch.tensor([[0.1, 0.5, 0.3, 0.1]])
    assert truncate(weights, 0, 0.6).gt(0).tolist() == [[False, True, True, False]]
    assert truncate(weights, 0, 0.5).gt(0).tolist() == [[False, True, False, False]]
    assert truncate(weights, 1, 1.0).gt(0).tolist() == [[False, True, False, False]]


def test_top_p_is_taken_of_what_top_k_left():
    weights = torch.tensor([[0.4, 0.3, 0.2, 0.1]])
    # Of the two largest, 0.4 is 57%: under 0.6, so the second stays.
    assert truncate(weights, 2, 0.6).gt(0).tolist() == [[True, True, False, False]]
    assert truncate(weights, 2, 0.55).gt(0).tolist() == [[True, False, False, False]]


def test_no_token_without_weight_is_drawn_at_either_end_of_the_unit_interval():
    logits = torch.tensor([[-50.0, 1.0, 2.0, -50.0]]).expand(2, -1)
    tokens, _ = sample(logits, torch.tensor([0.0, 1.0 - 2**-24]), Sampling(top_k=2))
    assert tokens.tolist() == [1, 2]


def test_temperature_0_is_greedy():
    logits = torch.tensor([[0.0, 3.0, 2.9], [1.0, -1.0, 0.5]])
    tokens, logprobs = sample(logits, torch.tensor([0.999, 0.999]), Sampling(temperature=0.0, top_p=0.95, top_k=20))
    assert tokens.tolist() == [1, 0]
    assert logprobs.tolist() == [0.0, 0.0]


def test_a_stream_is_fixed_by_its_key():
    first, again, other = Uniforms(2**63 + 1), Uniforms(2**63 + 1), Uniforms(5)
    numbers = [first.next() for _ in range(1_500)]
    assert numbers == [again.next() for _ in range(1_500)]
    assert numbers[:4] != [other.next() for _ in range(4)]
    assert all(0.0 <= number < 1.0 for number in numbers)
