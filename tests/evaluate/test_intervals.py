"""Intervals on cases that can be computed by hand, and their coverage on simulated runs."""

import numpy as np
import pytest

from sqale_grpo.evaluate.intervals import bootstrap, paired_difference, ratio, seeds_interval, student
from sqale_grpo.rollout.rates import wilson


def test_wilson_interval_of_a_known_case():
    low, high = wilson(8, 10)
    assert (round(low, 3), round(high, 3)) == (0.490, 0.943)


def test_paired_difference_of_a_known_case():
    mean, (low, high) = paired_difference([False, False, True, False], [True, True, True, False])
    assert mean == 0.5
    # Bonett and Price: 3 and 1 of 6 discordant, so 1/3 and an error of sqrt((4/6 - 1/9) / 6).
    assert (low + high) / 2 == pytest.approx(1 / 3) and high - low == pytest.approx(2 * 1.959964 * (5 / 54) ** 0.5)
    mean, (low, high) = paired_difference([1.0, 2.0, 3.0], [2.0, 4.0, 6.0], rate=False)
    assert mean == 2.0 and (high - low) / 2 == pytest.approx(4.3027 / 3**0.5)
    with pytest.raises(ValueError, match="same two or more"):
        paired_difference([True], [True])


def test_a_paired_interval_has_a_width_where_nothing_differs():
    for n in (2, 20, 300):
        mean, (low, high) = paired_difference([0] * n, [0] * n)
        assert mean == 0 and low == -high < 0
    mean, (low, high) = paired_difference([0, 0], [1, 1])
    assert mean == 1 and low < 0 and high == 1


def test_quantiles_of_student():
    published = {1: 12.706, 2: 4.303, 10: 2.228, 11: 2.201, 20: 2.086, 120: 1.980}
    assert {df: student(df) for df in published} == pytest.approx(published, abs=2e-3)


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
    assert seeds_interval([[("q", 1.0, 1.0)], []]) is None


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


@pytest.mark.slow
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize(("seeds", "seed_spread"), [(2, 0.0), (2, 0.03), (2, 0.08), (3, 0.0), (3, 0.08), (8, 0.08)])
def test_intervals_over_seeds_hold_the_true_rate(shared, seeds, seed_spread):
    """95% or more do: of 1,000 simulations at least 93.6% (two standard errors below)."""
    rng = np.random.default_rng(seeds)
    runs = 1_000
    hits = 0
    for _ in range(runs):
        low, high = seeds_interval(simulated(rng, seeds, 100, seed_spread, shared))
        hits += low <= 0.5 <= high
    assert hits / runs >= 0.936


@pytest.mark.slow
@pytest.mark.parametrize("n", [5, 20, 50, 300])
@pytest.mark.parametrize(("better", "worse"), [(0.0, 0.0), (0.05, 0.0), (0.05, 0.05), (0.2, 0.02), (0.3, 0.3)])
def test_paired_intervals_hold_the_true_difference(n, better, worse):
    rng = np.random.default_rng(n)
    runs, hits = 4_000, 0
    for draws in rng.random((runs, n)):
        gained = (draws < better).astype(float) - ((draws >= better) & (draws < better + worse))
        _, (low, high) = paired_difference(np.zeros(n), gained)
        hits += low <= better - worse <= high
    assert hits / runs >= 0.94


@pytest.mark.parametrize("seeds", [2, 3])
def test_few_seeds_that_differ_have_a_wide_interval(seeds):
    """The interval over seed means of Student's t is inside: their spread is known from S - 1 differences alone."""
    rates = [0.4, 0.5, 0.6][:seeds]
    parts = [[(f"q{i}", float(i % 10 < 10 * rate), 1.0) for i in range(200)] for rate in rates]
    low, high = seeds_interval(parts)
    half = student(seeds - 1) * np.std(rates, ddof=1) / seeds**0.5
    assert low < np.mean(rates) - half and high > np.mean(rates) + half


def test_the_spread_between_seeds_widens_the_interval():
    same = [[(f"q{i}", float(i % 2), 1.0) for i in range(100)]] * 3
    apart = [[(f"q{i}", float(i % 10 < rate), 1.0) for i in range(100)] for rate in (2, 5, 8)]
    width = lambda interval: interval[1] - interval[0]  # noqa: E731
    assert width(seeds_interval(apart)) > 2 * width(seeds_interval(same))
