"""Which gold queries fix the order of their rows."""

import json

import pytest
import sqlglot

from sqale_grpo.env.syntax import is_ordered


@pytest.mark.parametrize(
    ("sql", "ordered"),
    [
        ("SELECT a FROM t ORDER BY a", True),
        ("select a from t order\n-- by\nby/**/a", True),
        ("SELECT 1 UNION SELECT 2 ORDER BY 1", True),
        ("WITH x AS (SELECT 1) SELECT * FROM x ORDER BY 1 LIMIT 3;", True),
        ("VALUES (1), (2)", False),
        ("SELECT a FROM (SELECT a FROM t ORDER BY a)", False),
        ("WITH x AS (SELECT a FROM t ORDER BY a) SELECT * FROM x", False),
        ("SELECT rank() OVER (ORDER BY a) FROM t", False),
        ("SELECT rank() OVER w FROM t WINDOW w AS (PARTITION BY b ORDER BY a)", False),
        ("SELECT 'ORDER BY', \"order by\", [order by], `order by` FROM t -- ORDER BY a", False),
        ('SELECT a AS "order", b AS by FROM t', False),
        ("SELECT a FROM orders GROUP BY a", False),
        ("SELECT ')' FROM t ORDER BY 1", True),
        ("SELECT '(' FROM t WHERE a = (SELECT 1 ORDER BY 1)", False),
    ],
)
def test_top_level_order_by(sql, ordered):
    assert is_ordered(sql) is ordered


@pytest.mark.full
def test_as_sqlglot_sees_it_on_real_questions(shared_data):
    lines = (shared_data / "questions.jsonl").read_text(encoding="utf-8").splitlines()
    for sql in [json.loads(line)["sql"] for line in lines[::4]]:
        assert is_ordered(sql) == (sqlglot.parse_one(sql, dialect="sqlite").args.get("order") is not None), sql
