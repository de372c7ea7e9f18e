"""Length buckets split the corpus at its own percentiles."""

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sqale_grpo.curriculum import Buckets


@given(st.lists(st.integers(0, 400), min_size=1, max_size=300))
def test_every_question_is_in_the_bucket_of_its_length(lengths: list[int]) -> None:
    buckets = Buckets.from_lengths(lengths)
    assert buckets.bounds == pytest.approx(numpy.percentile(lengths, [50, 80, 95]))
    assert sorted(index for members in buckets.members for index in members) == list(range(len(lengths)))
    for index, length in enumerate(lengths):
        bucket = buckets.bucket_of[index]
        assert index in buckets.members[bucket]
        assert bucket == 3 or length <= buckets.bounds[bucket]
        assert bucket == 0 or length > buckets.bounds[bucket - 1]
    assert buckets.members[0], "some length is at most the median"
    assert sum(buckets.shares) == pytest.approx(1)


def test_different_lengths_give_the_percentiles_shares() -> None:
    buckets = Buckets.from_lengths(range(1000))
    assert buckets.names == ("short", "medium", "long", "very_long")
    assert buckets.shares == (0.5, 0.3, 0.15, 0.05)


def test_equal_lengths_share_a_bucket() -> None:
    assert [len(members) for members in Buckets.from_lengths([7] * 40).members] == [40, 0, 0, 0]


def test_bad_input_is_named() -> None:
    with pytest.raises(ValueError, match="the corpus has no question"):
        Buckets.from_lengths([])
    for percentiles in ((50, 80), (80, 50, 95), (0, 50, 95), (50, 80, 100)):
        with pytest.raises(ValueError, match="3 rising numbers between 0 and 100"):
            Buckets.from_lengths([1, 2], percentiles)
