"""Evaluation metrics on hand-computed examples."""

import pytest

from evaluate.metrics import (
    appears,
    literals_seen,
    opened_all,
    paired_difference,
    string_literals,
    summarize,
    wilson,
)


def test_string_literals_are_what_stands_in_single_quotes():
    sql = "SELECT \"a\" FROM t WHERE x = 'it''s' AND y IN ('b', 'b', 'c') AND n = 3 -- 'no'"
    assert string_literals(sql) == ["it's", "b", "c"]


@pytest.mark.parametrize(
    ("text", "found"),
    [("red | 3", True), ("a\nred", True), ("red_7", False), ("scared", False), ("'red'", True), ("Red", False)],
)
def test_a_literal_appears_as_a_whole(text, found):
    assert appears("red", text) is found


def test_literals_seen_tells_stated_from_unstated():
    sql = "SELECT 1 FROM t WHERE a = 'red_7' AND b = 'paris'"
    seen = literals_seen(sql, "How many red ones are in Paris?", ["hue\nred_7\nblue_1"])
    assert seen == {"all": (1, 2), "unstated": (1, 1)}


def test_recall_matches_names_as_sqlite_does():
    assert opened_all(["Orders", "items"], {"orders", "ITEMS", "x"})
    assert not opened_all(["Orders"], {"order"})


def test_wilson_interval_of_a_known_case():
    low, high = wilson(8, 10)
    assert (round(low, 3), round(high, 3)) == (0.490, 0.943)


def test_paired_difference_of_a_known_case():
    mean, (low, high) = paired_difference([False, False, True, False], [True, True, True, False])
    assert mean == 0.5
    assert round(high - low, 3) == round(2 * 1.959964 * (1 / 3) ** 0.5 / 2, 3)
    with pytest.raises(ValueError, match="same two or more"):
        paired_difference([True], [True])


def record(tier: str, unstable: str = "") -> dict:
    facts = {"recall": True, "rounds": 4, "calls": 5, "written_tokens": 90, "ended_by": "submit_sql"}
    literals = {"all": (1, 2), "unstated": (0, 0)}
    return {"tier": tier, "unstable": unstable, "reward": 1.0, "literals": literals, **facts}


def test_questions_with_an_unstable_gold_stand_apart():
    records = [record("equivalent"), record("executable"), record("equivalent", "clock"), record("invalid", "random")]
    summary = summarize(records)
    assert (summary["n"], summary["equivalent"], summary["literals_seen"]) == (2, 0.5, 0.5)
    assert summary["unstated_literals_seen"] is None
    assert summary["unstable"] == {"n": 2, "equivalent": 1}
    with pytest.raises(ValueError, match="2 questions, all with an unstable gold"):
        summarize(records[2:])
