"""The forms of an answer: JSON as its schema says, on a page that a test holds to it, and CSV."""

import csv
import io
import json
import sqlite3
from contextlib import closing
from typing import Any

import pytest

from sqale_grpo.agent import ask
from sqale_grpo.agent.agent import SQaLeAgent
from sqale_grpo.agent.schema import ANSWER, schema_markdown
from sqale_grpo.agent.show import to_csv, to_json
from sqale_grpo.env.program import run_program
from sqale_grpo.rollout.tokens import EpisodeTokens
from tests.conftest import ROOT

KINDS = {
    "object": dict,
    "array": list,
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "null": type(None),
}


def faults(value: Any, schema: dict[str, Any], place: str = "answer") -> list[str]:
    """Where a value is not as a schema of the few words that ours uses says."""
    names = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    if not any(isinstance(value, KINDS[name]) for name in names) or (
        isinstance(value, bool) and "boolean" not in names
    ):
        return [f"{place} is {value!r}, not {' or '.join(names)}"]
    if isinstance(value, dict) and "properties" in schema:
        known = schema["properties"]
        found = [f"{place} lacks {name}" for name in schema["required"] if name not in value]
        found += [f"{place} has {name}" for name in value if name not in known]
        return found + [
            line for name in known.keys() & value for line in faults(value[name], known[name], f"{place}.{name}")
        ]
    if isinstance(value, list):
        return [line for each in value for line in faults(each, schema["items"], f"{place}[]")]
    return []


@pytest.fixture
def values(tmp_path):
    """A database with every kind of value."""
    path = tmp_path / "values.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE t (a, b)")
        connection.executemany(
            "INSERT INTO t VALUES (?, ?)", [(1, "x"), (2.5, None), (b"\x00\xff", 'a,"b"\nc'), (9e999, "z")]
        )
        connection.commit()
    return path


def scripted(*answers: str | None):
    """One turn that looks and fails to call, then the answer."""

    def generate(episodes, keys, sampling, pool):
        for episode, sql in zip(episodes, answers, strict=True):
            episode.step('{"tool": "list_tables", "args": {}}{"tool": 3}')
            while episode.finished is None:
                episode.step("" if sql is None else json.dumps({"tool": "submit_sql", "args": {"sql": sql}}))
        return [EpisodeTokens([]) for _ in episodes]

    return generate


ANSWERS = {
    "rows": (["SELECT * FROM t"], 0.5),
    "none": ([None], 0.5),
    "error": (["SELECT gone FROM t"], 0.5),
    "sure": (["SELECT a FROM t", "SELECT a FROM t", "SELECT b FROM t"], 0.5),
    "not sure": (["SELECT a FROM t", "SELECT b FROM t", None], 0.5),
    "nothing runs": ([None, "SELECT gone"], 0.5),
}


@pytest.mark.parametrize(("answers", "sure"), ANSWERS.values(), ids=ANSWERS)
def test_every_answer_is_as_the_schema_says(values, answers, sure):
    found = SQaLeAgent(scripted(*answers)).run("How many?", values, candidates=len(answers), sure=sure)
    assert faults(json.loads(to_json(found)), ANSWER) == []


def test_the_check_sees_what_is_wrong():
    assert faults({"count": 1.5}, {"type": "object", "properties": {"count": {"type": "integer"}}, "required": []})
    assert faults([True], {"type": "array", "items": {"type": ["number", "null"]}})
    assert len(faults({"more": 1}, ANSWER)) == len(ANSWER["required"]) + 1


def test_the_page_is_the_schemas_table():
    page = (ROOT / "docs" / "answer.md").read_text(encoding="utf-8")
    assert schema_markdown() in page, "print it anew: agent.schema.schema_markdown()"


def test_csv_is_the_rows_and_nothing_else(values):
    found = SQaLeAgent(scripted("SELECT a, b AS 'b,c' FROM t")).run("How many?", values)
    rows = list(csv.reader(io.StringIO(to_csv(found))))
    assert rows == [["a", "b,c"], ["1", "x"], ["2.5", ""], ["x'00FF'", 'a,"b"\nc'], ["inf", "z"]]


@pytest.fixture
def command(values, monkeypatch, capsys):
    """The command line over scripted candidates."""

    def run(*answers: str | None, more: tuple[str, ...] = ()):
        monkeypatch.setattr(ask, "_load", lambda *_: (scripted(*answers), None))
        words = [
            "--model",
            "m",
            "--db",
            str(values),
            "--question",
            "Which?",
            "--candidates",
            str(len(answers)),
            "--csv",
        ]
        status = run_program(lambda: ask.main([*words, *more]))
        return status, *capsys.readouterr()

    return run


def test_csv_has_all_rows_unless_told_otherwise_and_says_what_is_left(command):
    many = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 30) SELECT i FROM n"
    status, out, error = command(many)
    assert (status, out.count("\n"), error) == (0, 31, "")
    status, out, error = command(many, more=("--rows", "2"))
    assert (status, out) == (0, "i\n1\n2\n") and "first 2 rows; --rows N gives more" in error


def test_without_an_answer_there_is_no_csv_and_a_status_of_1(command):
    for answers, words in (
        ((None,), "no answer: the policy gave none"),
        (("SELECT gone FROM t",), "no answer: schema: no such column: gone"),
        (("SELECT a FROM t", "SELECT b FROM t", None), "not sure: 33% of 3 candidates agree, 50% must"),
    ):
        status, out, error = command(*answers)
        assert (status, out, error.count("\n")) == (1, "", 1) and words in error


def test_csv_goes_with_one_question(capsys):
    words = ["--model", "m", "--db", "x", "--interactive", "--csv"]
    assert run_program(lambda: ask.main(words)) == 2 and "goes with --question" in capsys.readouterr().err
