"""Batches: whole numbers with the mixture as expectation, each question once before any comes again."""

import time
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sqale_grpo.curriculum import Buckets, Curriculum, MixtureSchedule
from sqale_grpo.curriculum.rounding import BLOCK, DrawCounts

BUCKETS = Buckets.from_lengths(range(4000))
RECIPE = Curriculum(BUCKETS, MixtureSchedule(), 18, 42)


@st.composite
def shares(draw: st.DrawFn) -> tuple[float, ...]:
    """Four shares that sum to 1, some of them often zero."""
    parts = draw(st.lists(st.sampled_from([0.0, 0.1, 0.25, 0.33, 1.0, 3.0]), min_size=4, max_size=4).filter(any))
    return tuple(part / sum(parts) for part in parts)


@given(shares(), shares(), st.integers(1, 30), st.integers(0, 2**32), st.integers(0, 5), st.integers(0, 40))
def test_counts_are_the_rounded_mixture_and_sum_to_the_batch(
    start: tuple[float, ...], end: tuple[float, ...], size: int, seed: int, warmup: int, ramp: int
) -> None:
    schedule = MixtureSchedule(warmup, ramp, start, end)
    counts = DrawCounts(schedule.mixture, schedule.settled, size, seed)
    before = [0, 0, 0, 0]
    for update in range(schedule.settled + 2 * BLOCK + 3):
        assert counts.before(update) == before
        drawn = counts.at(update)
        assert sum(drawn) == size
        for number, share in zip(drawn, schedule.mixture(update), strict=True):
            assert number >= 0 and abs(number - size * share) < 1 + 1e-6
        before = [position + number for position, number in zip(before, drawn, strict=True)]


@pytest.mark.parametrize("update", [0, 4, 7, 14, 104])
def test_over_seeds_the_mean_count_is_the_mixture(update: int) -> None:
    seeds = 1500
    schedule = MixtureSchedule(warmup=4, ramp=10)
    totals = [0, 0, 0, 0]
    for seed in range(seeds):
        drawn = DrawCounts(schedule.mixture, schedule.settled, 18, seed).at(update)
        totals = [total + number for total, number in zip(totals, drawn, strict=True)]
    for total, share in zip(totals, schedule.mixture(update), strict=True):
        # A rounded count's standard deviation is at most 1/2: five of the mean's are 0.065.
        assert abs(total / seeds - 18 * share) < 0.065


def test_over_the_run_the_counts_follow_the_mixture() -> None:
    drawn = [sum(column) for column in zip(*(RECIPE.counts(update) for update in range(400, 1800)), strict=True)]
    expected = [
        18 * sum(column) for column in zip(*(RECIPE.mixture(update) for update in range(400, 1800)), strict=True)
    ]
    # 1,400 independent roundings have a standard deviation below 19.
    assert max(abs(a - b) for a, b in zip(drawn, expected, strict=True)) < 60


def test_a_batch_is_a_function_of_seed_and_update() -> None:
    again = Curriculum(BUCKETS, MixtureSchedule(), 18, 42)
    for update in (1799, 5, 900, 5):
        assert again.batch(update) == RECIPE.batch(update)
    assert again.batch(6) != again.batch(5)
    assert Curriculum(BUCKETS, MixtureSchedule(), 18, 43).batch(5) != again.batch(5)


def test_each_question_of_a_bucket_comes_once_before_any_comes_again() -> None:
    buckets = Buckets.from_lengths(range(300))
    curriculum = Curriculum(buckets, MixtureSchedule(warmup=5, ramp=40), 18, 7)
    seen: list[Counter[int]] = [Counter() for _ in buckets.members]
    for update in range(150):
        batch = curriculum.batch(update)
        assert len(batch) == len(set(batch)) == 18
        assert Counter(buckets.bucket_of[index] for index in batch) == Counter(
            {bucket: count for bucket, count in enumerate(curriculum.counts(update)) if count}
        )
        for index in batch:
            seen[buckets.bucket_of[index]][index] += 1
        for bucket, counted in enumerate(seen):
            times = [counted[index] for index in buckets.members[bucket]]
            assert max(times) - min(times) <= 1


def test_the_warmup_draws_from_the_short_bucket_alone() -> None:
    short = set(BUCKETS.members[0])
    for update in (0, 200, 399):
        assert set(RECIPE.batch(update)) <= short


def test_a_bucket_smaller_than_its_share_goes_round() -> None:
    buckets = Buckets.from_lengths(range(20))  # the longest bucket holds one question
    batch = Curriculum(buckets, MixtureSchedule(warmup=0, ramp=0), 18, 0).batch(0)
    assert len(batch) == 18
    assert batch.count(19) >= 7


def test_an_empty_bucket_leaves_its_share_to_the_others() -> None:
    buckets = Buckets.from_lengths([5] * 60 + [9] * 30)  # every percentile is 5 or 9: two buckets are empty
    assert [len(members) for members in buckets.members] == [60, 30, 0, 0]
    curriculum = Curriculum(buckets, MixtureSchedule(warmup=0, ramp=0), 18, 0)
    assert curriculum.mixture(0) == pytest.approx((0.15 / 0.35, 0.20 / 0.35, 0, 0))
    assert len(set(curriculum.batch(0))) == 18
    long_only = MixtureSchedule(warmup=0, ramp=0, end=(0.0, 0.0, 0.5, 0.5))
    assert Curriculum(buckets, long_only, 18, 0).mixture(0) == buckets.shares


def test_a_question_that_may_not_come_is_passed_over_and_moves_no_other() -> None:
    """The others keep their order, so a gold query that fails costs the run one question and not all of its draws."""
    out = {RECIPE.orders[0][3], RECIPE.orders[2][0]}
    without = Curriculum(BUCKETS, MixtureSchedule(), 18, 42, set(range(4000)) - out)
    for order, whole in zip(without.orders, RECIPE.orders, strict=True):
        assert list(order) == [question for question in whole if question not in out]
    assert without.drawn(1800) == RECIPE.drawn(1800) and sum(RECIPE.drawn(1800)) == 18 * 1800
    long_gone = Curriculum(BUCKETS, MixtureSchedule(), 18, 42, BUCKETS.members[0])
    assert long_gone.mixture(1700) == (1.0, 0.0, 0.0, 0.0)


def test_a_corpus_smaller_than_a_batch_is_an_error() -> None:
    with pytest.raises(ValueError, match="the corpus has 17 questions, fewer than a batch of 18"):
        Curriculum(Buckets.from_lengths(range(17)), MixtureSchedule())
    with pytest.raises(ValueError, match="at least one question"):
        Curriculum(Buckets.from_lengths(range(17)), MixtureSchedule(), 0)


def test_late_updates_cost_no_more_than_early_ones() -> None:
    def cost(update: int) -> float:
        times = []
        for _ in range(20):
            start = time.perf_counter()
            RECIPE.batch(update)
            times.append(time.perf_counter() - start)
        return min(times)

    # One block of the settled part at most: some tens of microseconds, at update 1,700 as at a billion.
    assert cost(1700) - cost(0) < 0.0005
    assert cost(10**9) - cost(0) < 0.0005
