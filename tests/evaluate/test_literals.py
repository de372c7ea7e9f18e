"""Literals of the gold query: which there are, which are stated, shown and used."""

import pytest

from sqale_grpo.evaluate.literals import appears, count_literals, literals_of_answer, string_literals


@pytest.mark.parametrize(
    ("sql", "literals"),
    [
        ("SELECT \"a\" FROM t WHERE x = 'it''s' AND y IN ('b', 'b', 'c') AND n = 3 -- 'no'", ["it's", "b", "c"]),
        ("SELECT 1 FROM t WHERE a LIKE '%red%' AND b NOT LIKE 'x_' AND c GLOB '*y*'", ["red", "x", "y"]),
        ("SELECT 1 FROM t WHERE a = '100%' OR b = '_id' OR c = '' OR d = ' '", ["100%", "_id"]),
        ("SELECT 1 FROM t WHERE strftime('%Y', d) = '2023' AND d < datetime('now', '-1 year')", ["2023"]),
        ("SELECT date(max(CASE WHEN a = 'in' THEN d END)), 'out' FROM t", ["out"]),
        ("SELECT 1 FROM t WHERE x = 'open", []),
    ],
)
def test_string_literals_are_values_in_single_quotes(sql, literals):
    assert string_literals(sql) == literals


@pytest.mark.parametrize(
    ("text", "found"),
    [("red | 3", True), ("a\nred", True), ("red_7", False), ("scared", False), ("'red'", True), ("Red", False)],
)
def test_a_literal_appears_as_a_whole(text, found):
    assert appears("red", text) is found


def test_an_answer_may_hold_text_in_either_quotes():
    assert literals_of_answer("SELECT \"c\" FROM t WHERE a = \"red_7\" OR b LIKE '%it''s'") == {"c", "red_7", "it's"}


GOLD = "SELECT 1 FROM t WHERE a = 'red_7' AND b = 'paris' AND c = 'blue_2'"
QUESTION = "How many red ones are in Paris?"


def test_counts_tell_stated_from_unstated_and_seen_from_used():
    results = ["hue\nred_7\nblue_1", "c\nblue_2"]
    counts = count_literals(GOLD, QUESTION, results, "SELECT 1 FROM t WHERE a = 'red_7' AND b = 'paris'")
    assert (counts.literals, counts.literals_seen) == (3, 2)
    assert (counts.stated, counts.stated_seen) == (1, 0)
    assert (counts.unstated, counts.unstated_seen) == (2, 2)
    # 'paris' is in the answer and was never shown: it was not looked up.
    assert (counts.literals_used, counts.unstated_used) == (1, 1)


def test_without_an_answer_nothing_is_used():
    counts = count_literals(GOLD, QUESTION, ["red_7"], None)
    assert (counts.unstated_seen, counts.unstated_used) == (1, 0)
