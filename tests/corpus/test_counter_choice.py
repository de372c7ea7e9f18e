"""Counter-databases chosen at preparation: stored as seeds, catching what the database lets pass."""

import json
from pathlib import Path

import pytest

from sqale_grpo.corpus import CorpusError, prepare
from sqale_grpo.corpus.command import main
from sqale_grpo.corpus.counter_choice import ENDED
from sqale_grpo.corpus.gold_worker import Job, Judged, answers
from tests.helpers.corpora import database, json_lines

GOLDS = [
    "SELECT count(*) FROM shop WHERE name = 'Vier' AND sales > 30",  # nothing: SELECT 0 is right, and much else
    "SELECT name FROM City WHERE people > 1000",
    "SELECT rowid FROM City",
    "SELECT name FROM shop ORDER BY sales LIMIT 2",
    "SELECT random() FROM shop",
]


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("source")
    database(folder / "databases" / "shops" / "shops.sqlite")
    questions = [{"question_id": f"q{i}", "db_id": "shops", "question": "?", "sql": sql} for i, sql in enumerate(GOLDS)]
    json_lines(folder / "questions.jsonl", questions)
    return folder


@pytest.fixture(scope="module")
def prepared(source):
    return prepare("jsonl", source, source / "out", workers=1, progress=False, counter_databases=2)


def test_seeds_are_stored_with_the_question(prepared):
    copies, luck = prepared.column("copies"), prepared.column("luck")
    assert len(copies[0]) == 2 and len(copies[1]) == 2 and prepared.question(0).copies == tuple(copies[0])
    assert luck[0][0] > luck[0][1] >= luck[0][2] and prepared.luck(0)[0] == luck[0][0]
    assert copies[2] == [] and copies[4] == [], "row numbers change in a copy; what is unstable gets none"
    assert sum(prepared.summary["missing_copies"].values()) >= 1


def test_a_choice_depends_on_the_corpus_alone(prepared, source, tmp_path):
    again = prepare("jsonl", source, tmp_path / "again", workers=2, progress=False, counter_databases=2)
    assert again.column("copies") == prepared.column("copies") and again.column("luck") == prepared.column("luck")


def test_without_copies_nothing_is_chosen(source, tmp_path):
    plain = prepare("jsonl", source, tmp_path / "plain", workers=1, progress=False)
    assert plain.column("copies") == [[]] * len(plain) and plain.luck(1) == [1.0] * len(plain)
    with pytest.raises(CorpusError, match="its counter_databases was None and now is 1"):
        prepare("jsonl", source, tmp_path / "plain", workers=1, progress=False, counter_databases=1)
    with pytest.raises(CorpusError, match="counter_databases is 3: give 0 to 2"):
        prepare("jsonl", source, tmp_path / "more", counter_databases=3)


def test_score_prints_shares_and_ends_with_all_questions(prepared, capsys):
    assert main(["score", str(prepared.directory), "--json", "--workers", "1"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    last = lines[-1]
    assert last["wrong"] == sum(each["wrong"] for each in lines if each.get("by") == "mutation") > 0
    assert 0 <= last["paid_after"] <= last["paid_before"] <= last["wrong"]
    seen = [each for each in lines if each.get("by") == "mutation that the choice saw"]
    assert last["seen"]["wrong"] == sum(each["wrong"] for each in seen) > last["wrong"]
    assert last["refused_right"] == 0 and last["rewrites"] > 0 and last["not_measured"] == 0
    assert {each["by"] for each in lines[:-1]} == {
        *("mutation", "mutation that the choice saw", "reads no table", "gold result", "difficulty")
    }
    (constants,) = [each for each in lines if each.get("by") == "reads no table"]
    assert constants["paid_wrong_before"] == 1.0 and constants["paid_after"] < constants["paid_before"]
    main(["score", str(prepared.directory), "--questions", "1", "--workers", "1"])
    assert "1 questions (" in " ".join(capsys.readouterr().out.split())


def test_a_question_whose_choice_ends_its_process_is_kept_and_counted(source, tmp_path):
    """What is known before the copies are chosen says that they are missing; the process may end any moment after."""
    folder = tmp_path / "built.sqlite"
    job = Job(source / "databases" / "shops" / "shops.sqlite", folder, ((7, GOLDS[1]), (8, GOLDS[4])), 5.0, copies=1)
    judged = [answer for answer in answers(job) if isinstance(answer, Judged)]
    seven = [each for each in judged if each.number == 7]
    assert [each.verdict.choice.missing for each in seven] == [ENDED, ENDED, ""]
    assert [each.final for each in seven] == [False, False, True] and seven[-1].verdict.choice.seeds
    assert judged[-1].final and judged[-1].verdict.unstable == "random" and not judged[-1].verdict.choice.missing
