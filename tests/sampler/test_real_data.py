"""On real databases the gold query of a question has the same rows in every table mode as on the whole database."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from corpus.gold_tables import gold_tables
from env.chance import rng
from env.schema import SchemaGraph
from sampler import open_episode_database, select_tables
from tests.sampler.databases import catalog, contents, rows

MODES = ("sampled", "gold", "distractors:32", "full")
QUESTIONS = 2000


def test_gold_rows_are_the_same_in_every_mode(shared_data: Path) -> None:
    questions = [json.loads(line) for line in (shared_data / "questions.jsonl").read_text().splitlines()]
    checked = 0
    for question in questions[:: len(questions) // QUESTIONS][:QUESTIONS]:
        source = shared_data / "databases" / question["db_id"] / f"{question['db_id']}.sqlite"
        graph = SchemaGraph.from_file(source)
        gold = gold_tables(question["sql"], graph.tables)
        expected = rows(source, question["sql"])
        for mode in MODES:
            tables = select_tables(graph, gold, mode, rng("tables", 0, 0, question["question_id"]))
            with open_episode_database(source, tables) as database:
                assert rows(database.path, question["sql"]) == expected, (question["question_id"], mode)
        checked += 1
    assert checked == QUESTIONS


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
