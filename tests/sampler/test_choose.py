"""The choice of tables: the rules hold on random schemas, and the choice is uniform where it should be."""

import random
import sqlite3
from collections import Counter
from contextlib import closing
from itertools import permutations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sqale_grpo.env.chance import rng
from sqale_grpo.env.schema import SchemaGraph
from sqale_grpo.sampler import choose_tables, select_tables
from tests.helpers.databases import schema_of


def make_graph(edges: dict[str, list[str]]) -> SchemaGraph:
    """The graph of a database with a table a key of ``edges``, each with foreign keys to the tables listed."""
    with closing(sqlite3.connect(":memory:")) as connection:
        for table, parents in edges.items():
            keys = "".join(f", r{number} REFERENCES {parent}(id)" for number, parent in enumerate(parents))
            connection.execute(f"CREATE TABLE {table} (id INTEGER PRIMARY KEY{keys})")
        return schema_of(connection)


@st.composite
def schemas(draw: st.DrawFn) -> tuple[SchemaGraph, list[str]]:
    """A random graph of 1 to 25 tables, in parts or in one piece, with a gold set of 1 to 6 of them."""
    names = [f"t{number}" for number in range(draw(st.integers(1, 25)))]
    parents = {name: draw(st.lists(st.sampled_from(names), max_size=2, unique=True)) for name in names}
    gold = draw(st.lists(st.sampled_from(names), min_size=1, max_size=6, unique=True))
    return make_graph(parents), gold


@pytest.mark.full
@given(schemas(), st.integers(1, 30), st.integers(0, 2**32))
def test_the_rules_hold_on_random_schemas(schema: tuple[SchemaGraph, list[str]], target: int, seed: int) -> None:
    graph, gold = schema
    chosen = choose_tables(graph, gold, target, random.Random(seed))
    assert len(chosen) == len(set(chosen)) == max(len(gold), min(target, len(graph.tables)))
    assert set(gold) <= set(chosen) <= set(graph.tables)
    assert chosen == choose_tables(graph, gold, target, random.Random(seed))
    # Growth along keys comes before filling: a table with no path to the gold tables through chosen ones is
    # there only if everything that can be reached from gold is.
    reached = _reachable(graph, gold, set(graph.tables))
    if _reachable(graph, gold, set(chosen)) != set(chosen):
        assert reached <= set(chosen)


def _reachable(graph: SchemaGraph, start: list[str], within: set[str]) -> set[str]:
    seen, waiting = set(start), list(start)
    while waiting:
        fresh = set(graph.neighbors(waiting.pop())) & within - seen
        seen |= fresh
        waiting += fresh
    return seen


@pytest.mark.full
def test_every_size_from_low_to_high_comes_equally_often() -> None:
    graph = make_graph({f"t{number}": [f"t{max(number - 1, 0)}"] for number in range(100)})
    sizes = Counter(len(select_tables(graph, ["t50"], "sampled", rng("sizes", draw))) for draw in range(6100))
    assert set(sizes) == set(range(4, 65))
    # 60 degrees of freedom: above 112 once in 50,000 seeds; these are fixed.
    assert _chi_square(sizes.values()) < 112


def test_the_order_is_uniform() -> None:
    graph = make_graph({"gold": [], "a": ["gold"], "b": ["gold"], "c": ["a"]})
    orders = Counter(tuple(choose_tables(graph, ["gold"], 4, rng("orders", draw))) for draw in range(2000))
    assert set(orders) == set(permutations(["gold", "a", "b", "c"]))
    assert _chi_square(orders.values()) < 58  # 23 degrees of freedom, one seed in 13,000


def test_the_next_table_is_picked_uniformly_from_the_frontier() -> None:
    # The hub has ten neighbours, one of them tied by three keys: it is no more likely than the others.
    graph = make_graph({"hub": [], "thrice": ["hub", "hub", "hub"], **{f"n{number}": ["hub"] for number in range(9)}})
    picked: Counter[str] = Counter()
    for draw in range(2000):
        picked.update(set(choose_tables(graph, ["hub"], 2, rng("frontier", draw))) - {"hub"})
    assert len(picked) == 10
    assert _chi_square(picked.values()) < 35  # 9 degrees of freedom, one seed in 17,000


def _chi_square(counts: object) -> float:
    observed = list(counts)  # type: ignore[call-overload]
    expected = sum(observed) / len(observed)
    return sum((count - expected) ** 2 / expected for count in observed)


def test_schemas() -> None:
    graph = make_graph({f"t{number}": [f"t{max(number - 1, 0)}"] for number in range(80)})
    gold = ["T3", "t40", "t3"]
    assert sorted(select_tables(graph, gold, "gold", random.Random(0))) == ["t3", "t40"]
    assert len(select_tables(graph, gold, "distractors:32", random.Random(0))) == 34
    assert len(select_tables(graph, gold, "distractors:500", random.Random(0))) == 80
    assert sorted(select_tables(graph, gold, "full", random.Random(0))) == sorted(graph.tables)
    assert {len(select_tables(graph, gold, "sampled", random.Random(n), 5, 6)) for n in range(20)} == {5, 6}


def test_more_gold_tables_than_the_target_all_stay() -> None:
    graph = make_graph({f"t{number}": [] for number in range(9)})
    assert sorted(choose_tables(graph, [f"t{number}" for number in range(7)], 4, random.Random(1))) == [
        f"t{number}" for number in range(7)
    ]


def test_bad_input_is_named() -> None:
    graph = make_graph({"a": []})
    with pytest.raises(ValueError, match="gold table 'ghost' is not in the schema"):
        choose_tables(graph, ["ghost"], 4, random.Random(0))
    for schema in ("everything", "distractors", "distractors:", "distractors:-1"):
        with pytest.raises(ValueError, match=f"unknown schema '{schema}'"):
            select_tables(graph, ["a"], schema, random.Random(0))
    with pytest.raises(ValueError, match="low <= high"):
        select_tables(graph, ["a"], "sampled", random.Random(0), 9, 4)


def test_large_real_schemas_grow_to_every_size(shared_data: Path) -> None:
    for path in sorted((shared_data / "ddl").glob("*.sql")):
        with closing(sqlite3.connect(":memory:")) as connection:
            connection.executescript(path.read_text())
            graph = schema_of(connection)
        gold = [max(graph.tables, key=lambda table: len(graph.neighbors(table)))]
        reach = len(_reachable(graph, gold, set(graph.tables)))
        for target in (4, 30, 64, len(graph.tables)):
            chosen = choose_tables(graph, gold, target, rng(path.name, target))
            assert len(chosen) == min(target, len(graph.tables))
            assert len(_reachable(graph, gold, set(chosen))) == min(target, reach)
