"""Mutations: one mistake a kind, written by hand; and rewrites, which are none."""

import random

import pytest

from sqale_grpo.env.chance import rng
from sqale_grpo.reward.constants import constants
from sqale_grpo.reward.mutations import MUTATIONS, mutants
from sqale_grpo.reward.rewrites import REWRITES, rewrites
from sqale_grpo.reward.score import score_candidate

GOLD = (
    "SELECT c.name, count(o.id) FROM customer c JOIN orders o ON o.customer_id = c.id"
    " WHERE o.total > 9 AND c.city = 'Oslo' GROUP BY c.name HAVING count(*) > 1 ORDER BY c.name LIMIT 5"
)
EXPECTED = {
    "WHERE dropped": "ON o.customer_id = c.id GROUP BY",
    "AND to OR": "WHERE (o.total > 9 OR c.city = 'Oslo')",
    "HAVING dropped": "GROUP BY c.name ORDER BY",
    "GROUP BY dropped": "'Oslo' HAVING",
    "ASC/DESC turned": "ORDER BY c.name DESC",
    "LIMIT + 1": "LIMIT 6",
    "JOIN to LEFT JOIN": "LEFT JOIN orders",
    "join condition dropped": "orders AS o WHERE",
}


@pytest.fixture(scope="module")
def schema(shop):
    return shop.schema


def kinds(sql, schema, seed=1):
    return {each.kind: each.sql for each in mutants(sql, schema, random.Random(seed))}


def test_a_kind_changes_one_place(schema):
    found = kinds(GOLD, schema)
    for kind, part in EXPECTED.items():
        assert part in found[kind], kind
    assert found["LIMIT dropped"].endswith("ORDER BY c.name") and "ORDER BY" not in found["ORDER BY dropped"]
    assert len(set(found.values())) == len(found) and GOLD.casefold() not in {s.casefold() for s in found.values()}


@pytest.mark.parametrize(
    ("sql", "kind", "wanted"),
    [
        ("SELECT id FROM orders WHERE total > 9", "boundary shifted", ["total >= 9"]),
        ("SELECT id FROM orders WHERE total > 9", "number + 1", ["total > 10"]),
        ("SELECT id FROM orders WHERE total = 9.5", "condition flipped", ["total <> 9.5"]),
        ("SELECT min(total) FROM orders", "min/max, sum/avg swapped", ["SELECT MAX(total) FROM orders"]),
        ("SELECT name FROM region", "other column in SELECT", ['SELECT "id" FROM region']),
        ("SELECT name FROM region", "DISTINCT turned", ["SELECT DISTINCT name FROM region"]),
        ("SELECT DISTINCT name FROM region", "DISTINCT turned", ["SELECT name FROM region"]),
        ("SELECT count(DISTINCT city) FROM customer", "COUNT to COUNT DISTINCT", ["SELECT COUNT(city) FROM customer"]),
        ("SELECT 1 UNION SELECT 2", "set operation changed", ["SELECT 1 UNION ALL SELECT 2"]),
        ("SELECT 1 EXCEPT SELECT 2", "set operation changed", ["SELECT 1"]),
        (
            "SELECT 1 FROM customer WHERE id > 1 AND name = 'Bo' AND city = 'Rome'",
            "condition dropped",
            ["id > 1 AND name = 'Bo'", "id > 1 AND city = 'Rome'", "name = 'Bo' AND city = 'Rome'"],
        ),
    ],
)
def test_kinds_by_hand(schema, sql, kind, wanted):
    drawn = {kinds(sql, schema, seed)[kind] for seed in range(30)}
    assert all(any(part in text for text in drawn) for part in wanted)
    assert all(any(part in text for part in wanted) for text in drawn)


def test_a_join_condition_is_flipped_by_no_kind_for_where(schema):
    assert "condition flipped" not in kinds("SELECT 1 FROM customer c JOIN orders o ON o.customer_id = c.id", schema)


def test_mutants_are_a_function_of_the_chance(schema):
    assert mutants(GOLD, schema, rng("a")) == mutants(GOLD, schema, rng("a"))
    assert mutants("SELEC", schema, rng("a")) == []
    assert set(kinds(GOLD, schema)) <= set(MUTATIONS)


def test_constants_are_the_gold_rows():
    assert [each.sql for each in constants([(1, "it's", None)], 3)] == ["VALUES (1, 'it''s', NULL)"]
    assert [each.sql for each in constants([], 2)] == ["SELECT NULL, NULL WHERE 0"]
    assert list(constants([(1.5,)], 1)) == [] and list(constants([(1,)] * 9, 1)) == []


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT c.name, o.total FROM customer c JOIN orders o ON o.customer_id = c.id WHERE o.total > 9 AND c.id < 3",
        "SELECT DISTINCT city FROM customer",
        "SELECT name FROM customer WHERE id BETWEEN 2 AND 3",
        "-- who?\nSELECT name FROM customer WHERE name <> ';' ; -- all others;",
        "SELECT name FROM customer c JOIN orders o ON o.customer_id = c.id OR c.id = 4 ORDER BY o.id",
    ],
)
def test_rewrites_are_right(shop, shop_file, sql):
    found = rewrites(sql, rng("rewrites", sql))
    assert len(found) > 1 and {each.kind for each in found} <= {*REWRITES, "written by sqlglot", "wrapped"}
    for each in found:
        outcome = score_candidate(sql, shop_file, each.sql, shop)
        assert outcome.tier == "equivalent", (each, outcome.message)
