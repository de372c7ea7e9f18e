"""Small corpora in the official layouts, written by hand for the tests."""

import json
import sqlite3
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import sqale

SHOP = """
CREATE TABLE City (id INTEGER PRIMARY KEY, name TEXT, people INT);
CREATE TABLE shop (id INTEGER PRIMARY KEY, city_id INT REFERENCES City (id), name TEXT, opened TEXT, sales REAL);
CREATE TABLE empty_one (id INTEGER PRIMARY KEY);
CREATE VIEW big_city AS SELECT * FROM City WHERE people > 1000;
INSERT INTO City VALUES (1, 'Rome', 2800), (2, 'Oslo', 700), (3, 'Bonn', 700), (4, 'Köln', 1100);
INSERT INTO shop VALUES (1, 1, 'Uno', '2001-02-03', 10.5), (2, 2, 'Due', '2011-02-03', 20),
    (3, 2, 'Tre', '2021-02-03', 20);
"""
GOOD = "SELECT name FROM City WHERE people > 1000"


def database(path: Path, script: str = SHOP) -> Path:
    """A SQLite file made by a script."""
    path.parent.mkdir(parents=True, exist_ok=True)
    connection = sqlite3.connect(path)
    connection.executescript(script)
    connection.close()
    return path


def json_lines(path: Path, records: Iterable[dict[str, Any]]) -> Path:
    """A JSON-lines file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def own_questions(folder: Path, sqls: Iterable[str], db_id: str = "shop") -> Path:
    """A user's folder: one database, a question a query, numbered q0, q1, …"""
    database(folder / "databases" / db_id / f"{db_id}.sqlite")
    records = (
        {"question_id": f"q{i}", "db_id": db_id, "question": f"What is {i}?", "evidence": "", "sql": sql}
        for i, sql in enumerate(sqls)
    )
    json_lines(folder / "questions.jsonl", records)
    return folder


def phrasings(**usable: str) -> dict[str, str | None]:
    """The struct of eight phrasings; the ones that are not named are missing."""
    return {style: usable.get(style) for style in sqale.STYLES}


def sqale_question(number: int, schema_id: str, sql: str, **usable: str) -> dict[str, Any]:
    """A row of the published queries file."""
    return {
        "question_id": f"s{number}",
        "schema_id": schema_id,
        "sql": sql,
        "difficulty": ("simple", "moderate", "hard")[number % 3],
        "questions": phrasings(**(usable or {"verbose": f"Which one is number {number}?"})),
        "relevant_tables": json.dumps(["City", "shop"]),
        "number_of_relevant_tables": 2,
        "execution_result": json.dumps([[1]]),
    }


def sqale_schema(schema_id: str, ddl: str, content: dict[str, list[dict]]) -> dict[str, Any]:
    """A row of the published schemas file."""
    return {
        "schema_id": schema_id,
        "full_schema": ddl,
        "schema_content": json.dumps(content),
        "number_of_tables": ddl.upper().count("CREATE TABLE"),
    }


def sqale_folder(folder: Path, questions: list[dict], schemas: list[list[dict]], split: str = "train") -> Path:
    """Local parquet in SQaLe's layout: one queries file, and a shard for each list of schemas."""
    (folder / "queries").mkdir(parents=True, exist_ok=True)
    (folder / "schemas").mkdir(exist_ok=True)
    pq.write_table(pa.Table.from_pylist(questions), folder / "queries" / f"{split}.parquet")
    for number, shard in enumerate(schemas):
        name = f"{split}-{number:05d}-of-{len(schemas):05d}.parquet"
        pq.write_table(pa.Table.from_pylist(shard), folder / "schemas" / name)
    return folder


def dropped(out: Path) -> dict[str, str]:
    """Why each question of a prepared folder was dropped, by question id."""
    lines = (out / "dropped.jsonl").read_text().splitlines()
    return {record["question_id"]: record["reason"] for record in map(json.loads, lines)}
