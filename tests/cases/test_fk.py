"""Case file fk.jsonl: the schema graph's tables, foreign keys and join paths."""

import sqlite3
from contextlib import closing

from env.schema import SchemaGraph


def graph_of(ddl: str) -> SchemaGraph:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(ddl)
        return SchemaGraph.from_connection(connection)


def test_tables_and_keys(case):
    graph = graph_of(case["ddl"])
    lines = [f"{key.child}.{a} -> {key.parent}.{b}" for key in graph.foreign_keys for a, b in key.pairs()]
    assert sorted(graph.tables) == sorted(case["tables"])
    assert set(lines) == set(case["expect_fks"])


def test_join_path(case):
    asked = case["join_path"]
    if asked is not None:
        assert graph_of(case["ddl"]).join_path(asked["a"], asked["b"]) == asked["expect"]
