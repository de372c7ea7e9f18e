"""The comparator: its rules one by one, and random results against the slow comparator."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sqale_grpo.env.chance import rng
from sqale_grpo.reward import matching
from sqale_grpo.reward.compare import compare, match_rows
from sqale_grpo.reward.tolerance import same_value
from tests.helpers import slow
from tests.reward.conftest import result

# Values whose neighbours within the tolerance overlap, so that equality is not transitive; none sits on an edge.
NEAR = [
    1.0,
    1,
    1 + 8e-10,
    1 - 8e-10,
    1 + 1.7e-9,
    10**9,
    10**9 + 1,
    10**9 + 0.5,
    10**9 + 1.4,
    0.0,
    -0.0,
    0,
    7e-13,
    -6e-13,
]
OTHER = [None, "a", "1", b"a", b"", "", math.inf, -math.inf, 2**62, float(2**62), "\udcff"]


def tables(values, width):
    return st.lists(st.tuples(*[st.sampled_from(values)] * width), max_size=8)


@st.composite
def pairs_of_results(draw):
    """Two results of one width over a few values, so that near ones meet often."""
    width = draw(st.integers(1, 3))
    values = draw(st.lists(st.sampled_from(NEAR + OTHER), min_size=1, max_size=6))
    return draw(tables(values, width)), draw(tables(values, width))


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [
        (1, 1.0, True),
        (0.1 + 0.2, 0.3, True),
        (1_000_000, 1_000_001, False),
        (1_000_000, 1_000_000.0005, True),
        (1_000_000.0, 1_000_000.002, False),
        (20_231_104.0, 20_231_105.0, False),
        (0, 5e-13, True),
        (0, 2e-12, False),
        (0.0, -0.0, True),
        (math.inf, math.inf, True),
        (math.inf, 1e308, False),
        (math.inf, 3, False),
        (-1.7e308, 1.7e308, False),
        (9_223_372_036_854_775_807, 9.3e18, False),
        ("1", 1, False),
        ("a", b"a", False),
        ("", b"", False),
        (None, 0, False),
        (None, None, True),
        ("é", "e\u0301", False),
    ],
)
def test_values(a, b, same):
    assert same_value(a, b) is same_value(b, a) is same
    assert slow.same_value(a, b) is same


def test_columns_count_by_number_and_place():
    assert compare(result([], 1), result([], 2), False).difference == "1 column, the gold result has 2"
    assert compare(result([], 2), result([], 2), False).equivalent
    assert compare(result([(1, "a")]), result([("a", 1)]), False).f1 == 0


def test_the_difference_names_rows():
    assert compare(result([(1,), (2,), (2,)]), result([(1,), (2,), (3,)]), False).difference == (
        "1 of 3 rows not in the gold result, e.g. (2); 1 of 3 gold rows missing, e.g. (3)"
    )
    assert compare(result([(1,)]), result([(1,), (1,)]), False).difference == "1 of 2 gold rows missing, e.g. (1)"
    assert compare(result([(2,), (1,)]), result([(1,), (2,)]), True).difference == (
        "the right rows in another order: row 1 is (2), the gold result has (1)"
    )
    assert compare(result([(1.5,), (2.5,)]), result([(1.5,), (7.5,)]), False).difference == (
        "1 of 2 rows not in the gold result, e.g. (2.5); 1 of 2 gold rows missing, e.g. (7.5)"
    )
    long = compare(result([("x" * 10_000,) * 500]), result([("y",) * 500]), False).difference
    assert long is not None and len(long) < 500


def test_exact_pairs_are_given_up_where_more_pairs_need_it():
    # 1 could be paired with itself, but then neither neighbour, 1.6e-9 apart, would have a partner.
    assert match_rows([(1.0,), (1 - 8e-10,)], [(1.0,), (1 + 8e-10,)]).size == 2


@pytest.mark.full
@given(pairs_of_results())
def test_the_matching_is_a_largest_one(pair):
    left, right = pair
    assert match_rows(left, right).size == match_rows(right, left).size == slow.overlap(left, right)


@given(pairs_of_results(), st.booleans())
def test_equivalence_and_f1(pair, ordered):
    left, right = result(pair[0], 1), result(pair[1], 1)
    if len(left.columns) != len(right.columns):  # one is empty, so its width is not known
        return
    compared, back = compare(left, right, ordered), compare(right, left, ordered)
    largest = slow.overlap(*pair)
    same = largest == len(pair[0]) == len(pair[1])
    assert (compared.equivalent, compared.f1) == (back.equivalent, back.f1)
    assert compared.equivalent == (all(map(slow.same_row, *pair)) and len(pair[0]) == len(pair[1]) if ordered else same)
    assert compared.f1 == (2 * largest / (len(pair[0]) + len(pair[1])) if pair[0] or pair[1] else 1.0)
    assert (compared.f1 == 1.0) == same
    assert (compared.difference is None) == compared.equivalent


@given(pairs_of_results(), st.randoms(use_true_random=False))
def test_row_order_is_free_without_order_by(pair, chance):
    shuffled = chance.sample(pair[0], len(pair[0]))
    assert match_rows(shuffled, pair[1]).size == match_rows(*pair).size
    assert compare(result(shuffled), result(pair[0]), False).equivalent


@pytest.mark.parametrize("width", [1, 2])
def test_thousands_of_near_rows_are_matched_in_bounded_time(width):
    """Dense chains of near values, shifted against each other: far too many pairs to look at each."""
    left = [(1 + index * 1e-11,) * width for index in range(3_000)]
    right = [(1 + (index + 20) * 1e-11,) * width for index in range(3_000)]
    assert match_rows(left, right).size == 3_000


def test_a_matching_cut_short_is_too_small_never_too_large_and_symmetric(monkeypatch):
    monkeypatch.setattr("sqale_grpo.reward.matching.WORK", 200)
    monkeypatch.setattr("sqale_grpo.reward.matching.SMALL_BLOCK", 0)
    left = [(1 + index * 3e-10, 1.0) for index in range(60)]
    right = [(1 + index * 3e-10 + 2e-9, 1.0) for index in range(60)]
    cut_short = match_rows(left, right).size
    assert 0 < cut_short <= slow.overlap(left, right)
    assert match_rows(right, left).size == cut_short


def near_chains(chains, seed):
    """10,000 rows in so many chains, integers and reals: each chain is one block of its own."""
    chance = rng("near chains", seed)
    starts = [10**12 * (chain + 1) for chain in range(chains) for _ in range(10_000 // chains)]
    values = [start + chance.randrange(3_000) for start in starts]
    return [(value if chance.random() < 0.5 else value + 0.5,) for value in chance.sample(values, len(values))]


@pytest.mark.full
@pytest.mark.parametrize("chains", [5, 10, 20, 50])
def test_the_bound_of_work_is_one_for_all_blocks(chains, monkeypatch):
    done = 0
    size = matching.Augmenting.size

    def counted(self):
        nonlocal done
        before, pairs = self.work, size(self)
        done += before - self.work
        return pairs

    monkeypatch.setattr("sqale_grpo.reward.matching.Augmenting.size", counted)
    left, right = near_chains(chains, 1), near_chains(chains, 2)
    match = match_rows(left, right)
    assert done < 1.1 * matching.WORK and match.size > 9_000
    assert match_rows(right, left).size == match.size
