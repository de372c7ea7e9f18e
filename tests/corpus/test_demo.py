"""The demo corpus: SQaLe's columns, the promised sizes, nothing shared between the splits, the same rows every time."""

import hashlib
import json
import re
import sqlite3
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from sqale import build_database, is_usable_question
from sqale.deserialize import STYLES

from sqale_grpo.corpus import CorpusError
from sqale_grpo.corpus.demo import ROWS, DemoShape, write_demo_corpus

PARTS = [(kind, split) for kind in ("queries", "schemas") for split in ("train", "test")]
SIZE = DemoShape(schemas=(12, 6), questions=(8, 5))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_demo_corpus(tmp_path_factory.mktemp("demo"), 7, SIZE)


def rows(folder: Path, kind: str, split: str) -> list[dict]:
    return pq.read_table(folder / kind / f"{split}.parquet").to_pylist()


def test_columns_are_sqales(folder):
    question, schema = rows(folder, "queries", "train")[0], rows(folder, "schemas", "train")[0]
    assert set(question) == {
        "question_id",
        "schema_id",
        "sql",
        "difficulty",
        "questions",
        "relevant_tables",
        "number_of_relevant_tables",
        "execution_result",
    }
    assert set(question["questions"]) == set(STYLES)
    assert set(schema) == {"schema_id", "full_schema", "schema_content", "number_of_tables"}


def test_schemas_have_3_to_120_tables_with_keys_and_about_70_rows(folder):
    for split in ("train", "test"):
        schemas = rows(folder, "schemas", split)
        sizes = [schema["number_of_tables"] for schema in schemas]
        assert min(sizes) == 3 and max(sizes) == 120
        for schema in schemas:
            assert len(re.findall("CREATE TABLE", schema["full_schema"])) == schema["number_of_tables"]
            assert {len(table) for table in json.loads(schema["schema_content"]).values()} == {ROWS}
        assert all("REFERENCES" in schema["full_schema"] for schema in schemas)


def test_the_splits_share_no_schema(folder):
    train, test = (rows(folder, "schemas", split) for split in ("train", "test"))
    assert not {s["schema_id"] for s in train} & {s["schema_id"] for s in test}
    assert not {s["full_schema"] for s in train} & {s["full_schema"] for s in test}


def test_gold_results_are_those_of_the_library_built_database(folder):
    databases: dict[str, sqlite3.Connection] = {
        s["schema_id"]: build_database(s) for s in rows(folder, "schemas", "test")
    }
    for question in rows(folder, "queries", "test"):
        result = databases[question["schema_id"]].execute(question["sql"]).fetchall()
        assert [list(row) for row in result] == json.loads(question["execution_result"])
        assert result[0][0] not in (None, 0)
    for database in databases.values():
        database.close()


def test_every_difficulty_occurs_and_some_phrasings_are_placeholders(folder):
    questions = rows(folder, "queries", "train")
    assert {q["difficulty"] for q in questions} == {"simple", "moderate", "hard"}
    texts = [text for q in questions for text in q["questions"].values()]
    assert 0.01 < sum(not is_usable_question(text) for text in texts) / len(texts) < 0.15
    assert all(is_usable_question(q["questions"]["verbose"]) for q in questions)


def test_a_question_tells_neither_table_nor_coded_value(folder):
    for question in rows(folder, "queries", "train"):
        words = set(re.findall(r"\w+", question["questions"]["verbose"]))
        names = set(json.loads(question["relevant_tables"]))
        coded = set(re.findall(r"'([a-z]+\d)'", question["sql"]))
        assert not {name for name in names if "_" in name} & words
        assert not coded & words


@pytest.mark.full
def test_the_same_seed_writes_the_same_rows(folder, tmp_path):
    again = write_demo_corpus(tmp_path / "again", 7, SIZE)
    other = write_demo_corpus(tmp_path / "other", 8, SIZE)
    assert rows(again, "queries", "test") == rows(folder, "queries", "test")
    assert rows(again, "schemas", "test") == rows(folder, "schemas", "test")
    assert rows(other, "queries", "test") != rows(folder, "queries", "test")


def digest(folder: Path) -> str:
    return hashlib.sha256(str([rows(folder, *part) for part in PARTS]).encode()).hexdigest()[:16]


def test_the_corpus_of_the_demo_stays_what_it_was(folder):
    """Its rows are the demo's data: a change of the generator that moves them makes every published figure another."""
    assert digest(folder) == "9314a3bfe6a97e66"


@pytest.mark.parametrize(("tables", "n_rows"), [((40, 120), 70), ((5, 10), 300), ((5, 10), 2)])
def test_a_corpus_has_the_shape_that_it_is_told(tmp_path, tables, n_rows):
    shape = DemoShape(tables, n_rows, schemas=(4, 2), questions=(12, 3))
    write_demo_corpus(tmp_path, 5, shape)
    for split, n_schemas, n_questions in (("train", 4, 12), ("test", 2, 3)):
        schemas = rows(tmp_path, "schemas", split)
        assert len(schemas) == n_schemas
        sizes = [schema["number_of_tables"] for schema in schemas]
        assert (min(sizes), max(sizes)) == tables
        held = {len(table) for schema in schemas for table in json.loads(schema["schema_content"]).values()}
        assert held == {n_rows}
        questions = rows(tmp_path, "queries", split)
        assert len(questions) == n_schemas * n_questions
        assert all(json.loads(question["execution_result"])[0][0] not in (None, 0) for question in questions)
        assert {question["difficulty"] for question in questions} <= {"simple", "moderate", "hard"}


def test_a_reference_points_at_a_row_that_exists(tmp_path):
    write_demo_corpus(tmp_path, 5, DemoShape((5, 6), 2, schemas=(3, 1), questions=(4, 1)))
    for schema in rows(tmp_path, "schemas", "train"):
        tables = json.loads(schema["schema_content"])
        keys = re.findall(r"CREATE TABLE (\w+) .*?(\w+) \w+ REFERENCES", schema["full_schema"])
        assert all(row[column] in (1, 2) for table, column in keys for row in tables.get(table, []))


@pytest.mark.parametrize(
    ("shape", "says"),
    [
        (DemoShape(tables=(5, 1_000)), "5 to 1000 tables"),
        (DemoShape(tables=(9, 5)), "9 to 5 tables"),
        (DemoShape(rows=0), "one of everything"),
    ],
)
def test_a_shape_that_no_corpus_has_is_refused(tmp_path, shape, says):
    with pytest.raises(CorpusError, match=says):
        write_demo_corpus(tmp_path, 5, shape)
