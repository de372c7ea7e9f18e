"""Intervals on cases that can be computed by hand, and their coverage on simulated runs."""

import numpy as np
import pytest

from sqale_grpo.evaluate.intervals import bootstrap, bootstrap_seeds, paired_difference, ratio, wilson


def test_wilson_interval_of_a_known_case():
    low, high = wilson(8, 10)
    assert (round(low, 3), round(high, 3)) == (0.490, 0.943)


def test_paired_difference_of_a_known_case():
    mean, (low, high) = paired_difference([False, False, True, False], [True, True, True, False])
    assert mean == 0.5
    assert round(high - low, 3) == round(2 * 1.959964 * (1 / 3) ** 0.5 / 2, 3)
    with pytest.raises(ValueError, match="same two or more"):
        paired_difference([True], [True])


def test_the_bootstrap_of_a_mean_is_close_to_the_normal_interval():
    values = np.random.default_rng(1).normal(3.0, 2.0, 300)
    parts = [(f"q{i}", value, 1.0) for i, value in enumerate(values)]
    low, high = bootstrap(parts)
    half = 1.96 * values.std(ddof=1) / 300**0.5
    assert low == pytest.approx(values.mean() - half, abs=0.05)
    assert high == pytest.approx(values.mean() + half, abs=0.05)
    assert bootstrap(parts[::-1]) == (low, high)


def test_candidates_of_a_question_are_drawn_together():
    """Eight equal candidates a question tell no more than one does."""
    once = [(f"q{i}", float(i % 3 == 0), 1.0) for i in range(90)]
    assert bootstrap([part for part in once for _ in range(8)]) == pytest.approx(bootstrap(once))


def test_nothing_to_weigh_has_no_value():
    assert ratio([("q", 0.0, 0.0)]) is None
    assert bootstrap([("q", 0.0, 0.0)]) is None
    assert bootstrap([]) is None
    assert bootstrap_seeds([[("q", 1.0, 1.0)], []]) is None


def simulated(rng, seeds, questions, seed_spread, shared):
    """Answers of ``seeds`` policies whose true rates vary about 0.5, on the same or on different questions."""
    hardness = rng.normal(0, 0.25, (1 if shared else seeds, questions))
    rates = 0.5 + rng.normal(0, seed_spread, (seeds, 1)) + hardness
    answers = rng.random((seeds, questions)) < rates
    names = [[f"q{i}" if shared else f"{s}-{i}" for i in range(questions)] for s in range(seeds)]
    return [
        [(name, float(right), 1.0) for name, right in zip(*row, strict=True)]
        for row in zip(names, answers, strict=True)
    ]


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize(("seeds", "seed_spread"), [(3, 0.0), (3, 0.1), (8, 0.1)])
def test_intervals_over_seeds_hold_the_true_rate(shared, seeds, seed_spread):
    """About 95% do; 40 simulations tell it to a few points."""
    rng = np.random.default_rng(seeds)
    runs = 40
    hits = 0
    for _ in range(runs):
        low, high = bootstrap_seeds(simulated(rng, seeds, 60, seed_spread, shared))
        hits += low <= 0.5 <= high
    assert hits / runs >= 0.85


def test_the_spread_between_seeds_widens_the_interval():
    same = [[(f"q{i}", float(i % 2), 1.0) for i in range(100)]] * 3
    apart = [[(f"q{i}", float(i % 10 < rate), 1.0) for i in range(100)] for rate in (2, 5, 8)]
    width = lambda interval: interval[1] - interval[0]  # noqa: E731
    assert width(bootstrap_seeds(apart)) > 2 * width(bootstrap_seeds(same))
