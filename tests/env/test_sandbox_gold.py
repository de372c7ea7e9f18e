"""Real gold queries give in the sandbox what they give on a bare connection."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from itertools import groupby
from pathlib import Path

import pytest

from sqale_grpo.env.sandbox import Limits, Sandbox, SqlError, WorkerPool

SHORTEST, LONGEST = 2_000, 500
LIMITS = Limits(seconds=30.0)


def gold_queries(folder: Path) -> list[tuple[str, str]]:
    """(db_id, SQL) of the shortest and the longest queries, the queries of one database together."""
    with (folder / "questions.jsonl").open(encoding="utf-8") as lines:
        questions = [json.loads(line) for line in lines]
    questions.sort(key=lambda question: len(question["sql"]))
    return sorted((question["db_id"], question["sql"]) for question in questions[:SHORTEST] + questions[-LONGEST:])


def bare(database: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True)
    connection.text_factory = lambda text: text.decode("utf-8", "surrogateescape")
    return connection


def differences(folder: Path, pool: WorkerPool) -> Iterator[str]:
    for db_id, group in groupby(gold_queries(folder), key=lambda query: query[0]):
        database = folder / "databases" / db_id / f"{db_id}.sqlite"
        with closing(bare(database)) as connection, Sandbox(database, LIMITS, pool) as sandbox:
            for _, sql in group:
                expected = connection.execute(sql).fetchmany(LIMITS.rows + 1)
                try:
                    rows = sandbox.execute(sql).rows
                except SqlError as error:
                    if error.kind != "rows" or len(expected) <= LIMITS.rows:
                        yield f"{db_id}: {sql}: {error}"
                    continue
                if repr(rows) != repr(expected):  # repr tells 1 from 1.0
                    yield f"{db_id}: {sql}: {rows[:3]} is not {expected[:3]}"


@pytest.fixture(scope="module")
def pool():
    with WorkerPool(workers=1) as pool:
        yield pool


@pytest.mark.full
def test_gold_queries_give_the_rows_of_a_bare_connection(shared_data, pool):
    assert list(differences(shared_data, pool)) == []


def test_failing_gold_queries_fail_with_sqlites_message(shared_data, pool):
    with (shared_data / "failing.jsonl").open(encoding="utf-8") as lines:
        questions = [json.loads(line) for line in lines][::4]
    checked = 0
    for question in questions:
        database = shared_data / "databases" / question["db_id"] / f"{question['db_id']}.sqlite"
        with closing(bare(database)) as connection, Sandbox(database, LIMITS, pool) as sandbox:
            with pytest.raises((sqlite3.Error, sqlite3.Warning)) as expected:
                connection.execute(question["sql"]).fetchall()
            with pytest.raises(SqlError) as caught:
                sandbox.execute(question["sql"])
        if caught.value.kind != "denied":
            assert caught.value.message == str(expected.value)
            checked += 1
    assert checked > 50
