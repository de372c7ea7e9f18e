"""Case file reward.jsonl: tier, F1, join share, agreement and reward of one answer, alone or in its group."""

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from sqale_grpo.env.sandbox import Limits, Sandbox
from sqale_grpo.reward import score_group


@dataclass(frozen=True)
class Question:
    question_id: str
    gold_sql: str


@pytest.fixture(scope="module")
def databases(tmp_path_factory):
    """Path of the database that a set-up text builds; the same text is built once."""
    built: dict[str, Path] = {}

    def build(setup_sql: str) -> Path:
        if setup_sql not in built:
            built[setup_sql] = tmp_path_factory.mktemp("case") / "case.sqlite"
            with closing(sqlite3.connect(built[setup_sql])) as connection:
                connection.executescript(setup_sql)
        return built[setup_sql]

    return build


def test_outcome(case, databases):
    database = databases(case["setup_sql"])
    before = database.read_bytes()
    predictions = [case["pred_sql"], *(case["group"] or [])]
    with Sandbox(database, Limits(seconds=1.0)) as sandbox:
        outcome = score_group(Question(case["id"], case["gold_sql"]), database, predictions, sandbox)[0]
    expected = case["expect"]
    # The file's numbers are rounded to six places.
    assert outcome.tier == expected["tier"], outcome.message
    assert outcome.f1 == (None if expected["f1"] is None else pytest.approx(expected["f1"], rel=0, abs=1e-6))
    share = expected["fk_share"]
    assert outcome.join_share == (None if share is None else pytest.approx(share, rel=0, abs=1e-6))
    assert outcome.agrees == expected["agrees"]
    assert outcome.reward == pytest.approx(expected["reward"], rel=0, abs=1e-6)
    assert database.read_bytes() == before
