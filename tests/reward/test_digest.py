"""Digests: equal where the comparator says equal, in bounded size, also after a trip to another process."""

import pickle

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sqale_grpo.reward.compare import same_results
from sqale_grpo.reward.digest import BELOW, KEPT_CELLS, NEAREST, digest, rounded, same_digest
from sqale_grpo.reward.tolerance import same_value
from tests.reward.conftest import result
from tests.reward.test_compare import pairs_of_results

LARGE = KEPT_CELLS + 50


def equal(left, right, ordered=False):
    """By digests that were pickled, in both directions."""
    a, b = (pickle.loads(pickle.dumps(digest(result(rows), ordered))) for rows in (left, right))
    assert same_digest(a, b) == same_digest(b, a)
    return same_digest(a, b)


@given(pairs_of_results(), st.booleans())
def test_small_results_are_judged_as_by_the_comparator(pair, ordered):
    if pair[0] and pair[1]:
        assert equal(*pair, ordered) == same_results(*pair, ordered)


def test_width_counts_also_of_empty_results():
    assert same_digest(digest(result([], 1), False), digest(result([], 1), False))
    assert not same_digest(digest(result([], 1), False), digest(result([], 2), False))


def test_order_counts_where_the_gold_query_orders():
    assert equal([(1, "a"), (2, "b")], [(2, "b"), (1, "a")])
    assert not equal([(1, "a"), (2, "b")], [(2, "b"), (1, "a")], ordered=True)


def test_long_text_is_kept_short_and_told_apart():
    left, right = [("x" * 100_000 + "1", 0.5)], [("x" * 100_000 + "2", 0.5)]
    assert equal(left, left) and not equal(left, right) and not equal(left, [(b"x" * 100_000 + b"1", 0.5)])
    assert len(pickle.dumps(digest(result(left), False))) < 1_000


@pytest.mark.parametrize("ordered", [False, True])
def test_large_results(ordered):
    rows = [(index, index / 7, f"name {index}") for index in range(LARGE)]
    noisy = [(index, number * (1 + 1e-13), name) for index, number, name in rows]
    whole = [(float(index), number, name) for index, number, name in rows]
    other = [(index, number + (index == 9) * 1e-3, name) for index, number, name in rows]
    assert equal(rows, noisy, ordered) and equal(rows, whole, ordered) and not equal(rows, other, ordered)
    assert equal(rows, rows[::-1]) and not equal(rows, rows[::-1], ordered=True)
    assert len(pickle.dumps(digest(result(rows), ordered))) < 500


@example(1.7976931348623157e308, 0.0)
@given(st.floats(-1e300, 1e300), st.floats(min_value=-1e-13, max_value=1e-13))
def test_rounding_noise_stays_within_a_cell_of_one_grid(number, noise):
    other = number * (1 + noise)
    assert any(rounded(number, grid) == rounded(other, grid) for grid in (NEAREST, BELOW))


@given(st.floats(min_value=1e-9, max_value=1e12), st.floats(min_value=1e-11, max_value=1e-8), st.booleans())
def test_reals_in_one_cell_are_equal_by_the_comparator(number, gap, whole):
    other = round(number * (1 + gap)) if whole else number * (1 + gap)
    for grid in (NEAREST, BELOW):
        if rounded(number, grid) == (other if whole else rounded(other, grid)):
            assert same_value(number, other)
