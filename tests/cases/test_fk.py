"""Case file fk.jsonl: the schema graph's tables, foreign keys and join paths, and how a choice of tables grows."""

import sqlite3
from contextlib import closing

import pytest

from sqale_grpo.env.chance import rng
from sqale_grpo.env.schema import SchemaGraph
from sqale_grpo.sampler import choose_tables
from tests.helpers.databases import schema_of

DRAWS = 20


def graph_of(ddl: str) -> SchemaGraph:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(ddl)
        return schema_of(connection)


def test_tables_and_keys(case):
    graph = graph_of(case["ddl"])
    lines = [f"{key.child}.{a} -> {key.parent}.{b}" for key in graph.foreign_keys for a, b in key.pairs()]
    assert sorted(graph.tables) == sorted(case["tables"])
    assert set(lines) == set(case["expect_fks"])


def test_join_path(case):
    asked = case["join_path"]
    if asked is None:
        pytest.skip("the line asks for no path")
    assert graph_of(case["ddl"]).join_path(asked["a"], asked["b"]) == asked["expect"]


def test_grow(case):
    asked = case["grow"]
    if asked is None:
        pytest.skip("the line asks for no growth")
    graph = graph_of(case["ddl"])
    gold = {graph.find(table) for table in asked["gold_tables"]}
    for draw in range(DRAWS):
        chosen = choose_tables(graph, asked["gold_tables"], asked["target"], rng("grow", draw))
        added = set(chosen) - gold
        assert len(chosen) == len(set(chosen)) == asked["fill_size"]
        assert gold <= set(chosen) <= set(case["tables"])
        # Unrelated tables fill up only what growing along the keys cannot reach.
        assert len(added & set(asked["reachable"])) == asked["fk_only_size"] - len(gold)


def test_first_ring(case):
    asked = case["grow"]
    if asked is None or not asked["first_ring"]:
        pytest.skip("the line names no first ring")
    graph = graph_of(case["ddl"])
    gold = {graph.find(table) for table in asked["gold_tables"]}
    added = set()
    for draw in range(DRAWS * len(asked["first_ring"])):
        added |= set(choose_tables(graph, asked["gold_tables"], len(gold) + 1, rng("ring", draw))) - gold
    assert added == set(asked["first_ring"])
