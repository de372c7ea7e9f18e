"""The official verdicts, where they are looser or stricter than ours."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reward import bird_match, bird_verdict, compare, ehrsql_match, ehrsql_verdict, score_candidate
from tests.reward.conftest import result

NUMBERED = [(index,) for index in range(300)]


@pytest.mark.parametrize(
    ("prediction", "gold", "bird", "ehrsql", "ours"),
    [
        ([(1,), (2,)], [(2,), (1,)], True, True, True),
        ([(1,), (1,)], [(1,)], True, False, False),
        ([(1,)], [(1.0,)], True, False, True),
        ([(0.1 + 0.2,)], [(0.3,)], False, False, True),
        ([("1",)], [(1,)], False, False, False),
        ([("a", 1)], [(1, "a")], False, False, False),
        ([], [], True, True, True),
        ([], [(None,)], False, False, False),
        (NUMBERED[:100] + [("x",)], NUMBERED[:100] + [("y",)], False, True, False),
        (NUMBERED, NUMBERED[::-1], True, False, True),
        ([(math.inf,)], [(math.inf,)], True, True, True),
    ],
)
def test_verdicts_on_results(prediction, gold, bird, ehrsql, ours):
    assert bird_match(prediction, gold) is bird
    assert ehrsql_match(prediction, gold) is ehrsql
    assert compare(result(prediction), result(gold), False).equivalent is ours


cells = st.one_of(st.none(), st.integers(-3, 3), st.sampled_from([0.5, 1.0]), st.text("ab", max_size=1))


@given(st.lists(st.tuples(cells, cells), max_size=6), st.lists(st.tuples(cells, cells), max_size=6))
def test_both_are_as_in_the_published_scripts(prediction, gold):
    """The scripts' own lines, on small results."""
    assert bird_match(prediction, gold) == (set(prediction) == set(gold))
    as_published = [str(sorted([str(row) for row in rows[:100]])) for rows in (prediction, gold)]
    assert ehrsql_match(prediction, gold) == (as_published[0] == as_published[1])


def test_verdicts_on_queries(shop, shop_file):
    gold, repeated = "SELECT DISTINCT city FROM customer", "SELECT city FROM customer"
    assert bird_verdict(gold, shop_file, repeated, shop)
    assert not ehrsql_verdict(gold, shop_file, repeated, shop)
    assert score_candidate(gold, shop_file, repeated, shop).tier == "executable"
    for verdict in (bird_verdict, ehrsql_verdict):
        assert verdict(gold, shop_file, gold)
        assert not verdict(gold, shop_file, None, shop)
        assert not verdict(gold, shop_file, "SELECT nothing FROM customer", shop)
