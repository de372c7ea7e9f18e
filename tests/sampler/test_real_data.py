"""Large real schemas have their known graphs; gold queries have the same rows in every schema as on the whole."""

import json
import random
import sqlite3
from contextlib import closing
from pathlib import Path

import networkx
import pytest

from sqale_grpo.corpus.gold_tables import gold_tables
from sqale_grpo.env.chance import rng
from sqale_grpo.env.schema import SchemaGraph
from sqale_grpo.sampler import open_episode_database, select_tables
from tests.helpers.databases import catalog, contents, rows, schema_of

SCHEMAS = ("sampled", "gold", "distractors:32", "full")
QUESTIONS = 1000

# Tables and declared foreign keys, as the hand-over of the schemas counts them.
LARGE = {
    "musicbrainz": (371, 762),
    "chado_1_4": (213, 505),
    "zabbix_6_0": (173, 226),
    "openmrs_ref_2_9": (157, 478),
    "openstreetmap_website": (57, 71),
}


@pytest.mark.parametrize("name", LARGE)
def test_large_schemas_have_their_tables_keys_and_join_paths(shared_data: Path, name: str) -> None:
    """The keys, and networkx's graph of them, come from SQLite's PRAGMA, not from the graph under test."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript((shared_data / "ddl" / f"{name}.sql").read_text())
        graph = schema_of(connection)
        declared = [
            (table, key, parent.lower(), column.lower(), str(target).lower())
            for table in graph.tables
            for key, _, parent, column, target, *_ in connection.execute(f'PRAGMA foreign_key_list("{table}")')
        ]
    assert (len(graph.tables), len({row[:2] for row in declared})) == LARGE[name]
    keys: dict[tuple[str, int], set[tuple[str, ...]]] = {}
    for table, key, *pair in declared:
        keys.setdefault((table, key), set()).add(tuple(pair))
    # The same key declared twice is one.
    assert len(graph.foreign_keys) == len({(table, frozenset(pairs)) for (table, _), pairs in keys.items()})
    model = networkx.Graph([(table, graph.find(parent)) for table, _, parent, *_ in declared])
    model.add_nodes_from(graph.tables)
    chance = random.Random(name)
    for _ in range(100):
        a, b = chance.sample(graph.tables, 2)
        expected = min(networkx.all_shortest_paths(model, a, b)) if networkx.has_path(model, a, b) else None
        assert graph.join_path(a, b) == expected


@pytest.mark.long
def test_gold_rows_are_the_same_in_every_schema(shared_data: Path) -> None:
    questions = [json.loads(line) for line in (shared_data / "questions.jsonl").read_text().splitlines()]
    checked = 0
    for question in questions[:: len(questions) // QUESTIONS][:QUESTIONS]:
        source = shared_data / "databases" / question["db_id"] / f"{question['db_id']}.sqlite"
        graph = SchemaGraph.from_file(source)
        gold = gold_tables(question["sql"], graph.tables)
        expected = rows(source, question["sql"])
        for schema in SCHEMAS:
            tables = select_tables(graph, gold, schema, rng("tables", 0, 0, question["question_id"]))
            with open_episode_database(source, tables) as database:
                assert rows(database.path, question["sql"]) == expected, (question["question_id"], schema)
        checked += 1
    assert checked == QUESTIONS


@pytest.mark.long
@pytest.mark.parametrize("small_bytes", [2**40, 0], ids=["copied", "overlaid"])
def test_real_databases_arrive_whole(shared_data: Path, small_bytes: int) -> None:
    sources = sorted((shared_data / "databases").glob("*/*.sqlite"))
    for source in sources[:: 1 if small_bytes else 4]:
        tables = select_tables(SchemaGraph.from_file(source), [], "full", rng("full", source.stem))
        with open_episode_database(source, tables, small_bytes) as database:
            for table in tables:
                assert catalog(database.path, table) == catalog(source, table)
                assert contents(database.path, table) == contents(source, table)
            if small_bytes:
                with closing(sqlite3.connect(database.path)) as connection:
                    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
