"""Ties of ORDER BY: rows with equal order keys are a multiset among themselves."""

import sqlite3

import pytest

from sqale_grpo.reward import score_candidate, score_group
from sqale_grpo.reward.compare import compare
from sqale_grpo.reward.ties import tie_sizes
from tests.reward.conftest import result
from tests.reward.test_score import Question

TABLE = """
CREATE TABLE t(a TEXT COLLATE NOCASE, b INT, c REAL);
INSERT INTO t VALUES ('x', 1, 1.0), ('X', 2, 1), ('y', 1, NULL), ('z', 3, NULL), ('y', 1, 5);
"""


@pytest.mark.parametrize(
    ("sql", "sizes"),
    [
        ("SELECT a, b FROM t ORDER BY a", (2, 2, 1)),  # by the column's own collation
        ("SELECT b FROM t ORDER BY a COLLATE BINARY", (1, 1, 2, 1)),
        ("SELECT b FROM t ORDER BY lower(a) DESC;", (1, 2, 2)),
        ("SELECT * FROM t ORDER BY b -- and that is all", (3, 1, 1)),
        ("SELECT * FROM t ORDER BY b; -- and that is all", (3, 1, 1)),
        ("SELECT b FROM t ORDER BY lower(a) DESC; /* all */", (1, 2, 2)),
        ("SELECT t.*, b AS q FROM t ORDER BY q DESC", (1, 1, 3)),
        ("SELECT a AS n, count(*) FROM t GROUP BY a ORDER BY 2 DESC", (2, 1)),
        ("SELECT a FROM t GROUP BY a ORDER BY count(*)", (1, 2)),
        ("SELECT a, b FROM t UNION ALL SELECT a, b FROM t ORDER BY b", (6, 2, 2)),
        ("SELECT a AS n, b FROM t UNION ALL SELECT a, b FROM t ORDER BY n, 2", (2, 2, 4, 2)),
        ("SELECT b FROM t ORDER BY b LIMIT 2", (2,)),
        ("SELECT b, c FROM t ORDER BY c NULLS LAST", (2, 1, 2)),  # NULL ties with NULL
        ("WITH w AS (SELECT b FROM t) SELECT w.b + 1 AS k FROM w ORDER BY k + 0", (3, 1, 1)),
        ("SELECT b AS a FROM t ORDER BY a", (3, 1, 1)),  # the alias, not the column
        ("SELECT c AS b FROM t ORDER BY b + 0", (3, 1, 1)),  # within an expression the column, not the alias
        ("SELECT DISTINCT b FROM t ORDER BY b", ()),
        ("SELECT DISTINCT b FROM t ORDER BY c", ()),  # the keys of a row are not known
        ("SELECT b FROM t ORDER BY rowid", ()),
    ],
)
def test_groups_of_equal_keys(sql, sizes):
    connection = sqlite3.connect(":memory:")
    connection.executescript(TABLE)

    def run(text):
        try:
            return connection.execute(text).fetchall()
        except sqlite3.Error:
            return None

    assert tie_sizes(sql, connection.execute(sql).fetchall(), run) == sizes


def test_a_group_is_a_multiset_and_groups_are_a_sequence():
    gold = result([(1,), (2,), (2,), (3,)])
    assert compare(result([(2,), (1,), (2,), (3,)]), gold, True, (3, 1)).equivalent
    assert not compare(result([(2,), (2,), (3,), (1,)]), gold, True, (3, 1)).equivalent
    assert not compare(result([(1,), (1,), (2,), (3,)]), gold, True, (3, 1)).equivalent
    assert not compare(result([(2,), (1,), (2,), (3,)]), gold, True).equivalent


def test_right_answers_that_break_ties_in_two_ways_agree(shop, shop_file):
    gold = "SELECT name FROM customer WHERE city = 'Oslo' ORDER BY city"
    answers = [f"{gold}, name DESC", f"{gold}, name", "SELECT 1", "SELECT 1", "SELECT name FROM customer ORDER BY id"]
    outcomes = score_group(Question(gold), shop_file, answers, shop)
    assert [outcome.tier for outcome in outcomes[:2]] == ["equivalent", "equivalent"]
    assert [outcome.agrees for outcome in outcomes] == [True, True, True, True, False]


def test_keys_that_sqlglot_cannot_tell_leave_the_exact_sequence(shop, shop_file):
    gold = "SELECT DISTINCT city FROM customer ORDER BY region IS NULL, region"
    assert score_candidate(gold, shop_file, gold, shop).tier == "equivalent"
    other = "SELECT city FROM (SELECT DISTINCT city FROM customer) ORDER BY city IS NOT NULL"
    assert score_candidate(gold, shop_file, other, shop).tier == "executable"
