"""prepare: what is kept, what is dropped and why, and that the same call does its work once."""

import json
import pickle
import random
import sqlite3
import threading
from pathlib import Path

import datasets
import pytest

from sqale_grpo.corpus import CorpusError, Question, open_prepared, prepare
from tests.helpers.corpora import GOOD, database, dropped, json_lines, own_questions, sqale_folder, sqale_question
from tests.helpers.corpora import sqale_schema as schema
from tests.helpers.programs import program

main = program("corpus")

ENDLESS = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT count(*) FROM n, City"
UNINTERRUPTIBLE = "SELECT instr(hex(zeroblob(499000)), hex(zeroblob(249000)) || 'x') FROM City"

REASONS = {
    "SELECT name FROM Nowhere": "unknown table",
    "SELECT no_column FROM City": "gold does not execute",
    "SELEC name FROM City": "gold does not execute",
    "DELETE FROM City": "gold does not execute",
    "SELECT 1 FROM City; SELECT 2 FROM City": "gold does not execute",
    "-- SELECT 1": "gold does not execute",
    "EXPLAIN SELECT name FROM City": "gold reads the schema",
    "/* the plan */ explain query plan SELECT name FROM City": "gold reads the schema",
    "SELECT 'a\x00b' FROM City": "gold does not execute",
    "SELECT zeroblob(2000000) FROM City": "gold does not execute",
    "SELECT 1": "gold reads no table",
    "SELECT name FROM sqlite_master": "gold reads the schema",
    "SELECT a.id FROM City a, City b, City c, City d, City e, City f, City g": "gold returns too many rows",
    "": "no gold SQL",
    " ;": "gold does not execute",
}


def silent(source: Path, out: Path, **options: object):
    return prepare("jsonl", source, out, **({"progress": False, "workers": 1} | options))


def test_dropped_with_the_right_reason(tmp_path: Path) -> None:
    own_questions(tmp_path / "in", [GOOD, *REASONS])
    corpus = silent(tmp_path / "in", tmp_path / "out")
    assert dropped(tmp_path / "out") == {f"q{i}": reason for i, reason in enumerate(REASONS.values(), 1)}
    assert len(corpus) == 1 and corpus.question(0).question_id == "q0"
    assert (
        corpus.summary["read"] == 1 + len(REASONS) == corpus.summary["kept"] + sum(corpus.summary["dropped"].values())
    )


@pytest.mark.full
def test_queries_that_do_not_end(tmp_path: Path) -> None:
    """One that SQLite can interrupt, and one that only the end of its process stops; the next is judged."""
    own_questions(tmp_path / "in", [GOOD, ENDLESS, UNINTERRUPTIBLE, GOOD + " -- again"])
    corpus = silent(tmp_path / "in", tmp_path / "out", seconds=0.3)
    assert dropped(tmp_path / "out") == {"q1": "gold times out", "q2": "gold times out"}
    assert corpus.column("question_id") == ["q0", "q3"]


def test_what_a_question_holds(tmp_path: Path) -> None:
    sql = "SELECT count(*) FROM CITY AS c JOIN Shop ON shop.city_id = c.id WHERE c.name = 'Nowhere' GROUP BY c.id"
    own_questions(tmp_path / "in", [GOOD, sql])
    corpus = silent(tmp_path / "in", tmp_path / "out")
    assert corpus.question(0) == Question("q0", "shop", "What is 0?", "", GOOD, ("City",), "", "jsonl")
    assert corpus.question(1).gold_tables == ("City", "shop")
    assert corpus.gold_sqls() == [GOOD, sql]
    assert corpus.column("n_rows") == [2, 0] and corpus.summary["empty_gold"] == 1
    (record,) = corpus.databases()
    assert (record["db_id"], record["tables"], record["foreign_keys"], record["rows"]) == ("shop", 3, 1, 7)
    for index in (-1, 2):
        with pytest.raises(IndexError):
            corpus.question(index)


def test_unstable_golds_are_kept_and_marked(tmp_path: Path) -> None:
    sqls = [
        GOOD,
        "SELECT name FROM City ORDER BY people LIMIT 1",
        "SELECT name FROM shop WHERE opened < date('now', '-20 years')",
    ]
    own_questions(tmp_path / "in", sqls)
    corpus = silent(tmp_path / "in", tmp_path / "out")
    assert corpus.unstable() == ["", "limit_ties", "clock"] and corpus.stable_indices() == [0]
    assert corpus.summary["unstable"] == {"clock": 1, "limit_ties": 1}


def test_sqale_end_to_end(tmp_path: Path) -> None:
    """Type names, empty tables, refused DDL and refused rows of the real data; phrasings are drawn uniformly."""
    ddl = "CREATE TABLE city (id int8 PRIMARY KEY, name Varchar(20), area Numeric); CREATE TABLE none (id int8);"
    rows = [{"id": 1, "name": "Rome", "area": 2.5}, {"id": 1, "name": "twice"}, {"id": 2, "name": "Oslo", "area": None}]
    good = schema("a", ddl + " CREATE TABEL broken (id);", {"city": rows, "absent": [{"x": 1}]})
    questions = [
        sqale_question(0, "a", "SELECT name FROM city", verbose="v?", casual="c?", structured="..."),
        sqale_question(1, "a", "SELECT id FROM none"),
        sqale_question(2, "a", "SELECT id FROM broken"),
        sqale_question(3, "a", "SELECT id FROM city", verbose="..."),
        sqale_question(4, "gone", "SELECT 1"),
        sqale_question(0, "a", "SELECT id FROM city"),
        sqale_question(6, "hollow", "SELECT 1"),
    ]
    shards = [[schema("hollow", "nonsense", {})], [good]]
    folder = sqale_folder(tmp_path / "in", questions, shards)
    corpus = prepare("sqale", folder, tmp_path / "out", workers=2, progress=False)
    assert corpus.column("question_id") == ["s0", "s1"]
    assert sqlite3.connect(corpus.database("a")).execute("SELECT name FROM city").fetchall() == [("Rome",), ("Oslo",)]
    texts = [corpus.question(0, random.Random(seed)).text for seed in range(200)]
    assert set(texts) == {"v?", "c?"} and 60 < texts.count("c?") < 140 and corpus.question(0).text == "v?"
    records = [json.loads(line) for line in (tmp_path / "out/dropped.jsonl").read_text().splitlines()]
    assert [(r["question_id"], r["reason"]) for r in records] == [
        ("s2", "unknown table"),
        ("s3", "no usable phrasing"),
        ("s4", "no such database"),
        ("s0", "duplicate question_id"),
        ("s6", "database cannot be used"),
    ]


def test_a_question_is_asked_in_the_wording_that_carries_its_evidence(tmp_path: Path) -> None:
    hint = "Cities, evidence: and towns, have names."
    both = f"Which city?, evidence: {hint}"
    questions = [
        sqale_question(0, "a", "SELECT name FROM city", verbose="v?", casual="c?", evidence_supported=both),
        sqale_question(1, "a", "SELECT id FROM city", verbose="v?", evidence_supported="Which?, evidence: "),
    ]
    shards = [[schema("a", "CREATE TABLE city (id int8 PRIMARY KEY, name Varchar(20));", {"city": [{"id": 1}]})]]
    corpus = prepare(
        "sqale", sqale_folder(tmp_path / "in", questions, shards), tmp_path / "out", workers=1, progress=False
    )
    asked = [corpus.question(0, random.Random(seed), True) for seed in range(20)]
    assert {(each.text, each.evidence) for each in asked} == {
        ("Which city?", "Cities, evidence: and towns, have names.")
    }
    assert (corpus.question(1, None, True).text, corpus.question(1, None, True).evidence) == ("v?", "")
    drawn = {corpus.question(0, random.Random(seed)).text for seed in range(200)}
    assert drawn == {"v?", "c?", both}, "without the key the wording is one of all"


@pytest.mark.full
def test_demo_goes_the_same_way(tmp_path: Path) -> None:
    train = prepare("demo", None, tmp_path / "train", limit=60, workers=1, progress=False, seed=3)
    assert len(train) == 60 and train.summary["dropped"] == {}
    assert train.question(0).gold_tables and train.question(0).difficulty
    with pytest.raises(CorpusError, match="its seed was 3 and now is 4"):
        prepare("demo", None, tmp_path / "train", limit=60, workers=1, progress=False, seed=4)


def test_the_same_call_returns_at_once_and_another_is_refused(tmp_path: Path) -> None:
    source = own_questions(tmp_path / "in", [GOOD, GOOD + " "])
    out = tmp_path / "out"
    silent(source, out)
    written = (out / "index.parquet").stat().st_mtime_ns
    assert len(silent(source, out, workers=2)) == 2
    assert (out / "index.parquet").stat().st_mtime_ns == written
    with pytest.raises(CorpusError, match=r"its limit was None and now is 1: delete that folder, or name another one"):
        silent(source, out, limit=1)
    json_lines(source / "questions.jsonl", [{"db_id": "shop", "question": "?", "sql": GOOD}])
    with pytest.raises(CorpusError, match="the files of the source have changed"):
        silent(source, out)


@pytest.mark.full
@pytest.mark.parametrize("workers", [2, 3])
def test_any_number_of_workers_gives_the_same_folder(tmp_path: Path, workers: int) -> None:
    source = tmp_path / "in"
    for i in range(6):
        database(source / f"databases/db{i}.sqlite")
    sqls = [GOOD, *REASONS]
    records = [{"db_id": f"db{i % 6}", "question": f"{i}?", "sql": sqls[i % len(sqls)]} for i in range(60)]
    json_lines(source / "questions.jsonl", records)
    silent(source, tmp_path / "one")
    silent(source, tmp_path / "many", workers=workers)
    for name in ("index.parquet", "databases.parquet", "dropped.jsonl", "prepared.json"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "many" / name).read_bytes(), name


def test_more_questions_than_a_portion(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sqale_grpo.corpus.preparation.PORTION", 7)
    own_questions(tmp_path / "in", [f"SELECT {i} FROM City" for i in range(30)])
    corpus = silent(tmp_path / "in", tmp_path / "out", workers=2)
    assert corpus.gold_sqls() == [f"SELECT {i} FROM City" for i in range(30)]
    assert corpus.databases()[0]["rows"] == 7


def test_prepared_corpus_in_threads_pickles_and_datasets(tmp_path: Path) -> None:
    own_questions(tmp_path / "in", [f"SELECT {i} FROM City" for i in range(600)])
    corpus = silent(tmp_path / "in", tmp_path / "out")
    found: dict[int, str] = {}

    def look(start: int) -> None:
        found.update({i: corpus.question(i).gold_sql for i in range(start, 600, 4)})

    threads = [threading.Thread(target=look, args=(start,)) for start in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {i: f"SELECT {i} FROM City" for i in range(600)}
    assert pickle.loads(pickle.dumps(corpus)).question(599) == corpus.question(599)
    path, cache = str(tmp_path / "out/index.parquet"), str(tmp_path / "cache")
    assert datasets.Dataset.from_parquet(path, cache_dir=cache)["gold_sql"][599] == "SELECT 599 FROM City"


def test_a_lone_surrogate_and_odd_ids(tmp_path: Path) -> None:
    database(tmp_path / "in/databases/farmer's market?.sqlite")
    record = {"question_id": "\udc00", "db_id": "farmer's market?", "question": "\ud800?", "sql": GOOD}
    json_lines(tmp_path / "in/questions.jsonl", [record])
    corpus = silent(tmp_path / "in", tmp_path / "out")
    assert corpus.question(0).text == "??" and corpus.database("farmer's market?").exists()


def test_nothing_left_is_an_error(tmp_path: Path) -> None:
    own_questions(tmp_path / "in", ["SELECT 1", "SELECT x FROM y"])
    with pytest.raises(
        CorpusError, match="'jsonl' is empty, no question is left of 2: 1 gold reads no table, 1 unknown table"
    ):
        silent(tmp_path / "in", tmp_path / "out")
    json_lines(tmp_path / "none/questions.jsonl", [])
    with pytest.raises(CorpusError, match="is empty, no question is left of 0: the source has no questions"):
        silent(tmp_path / "none", tmp_path / "out2")


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    own_questions(tmp_path / "in", [GOOD])
    (tmp_path / "in/databases/shop/shop.sqlite").write_text(
        "this is not a database, but long enough to be looked at" * 9
    )
    with pytest.raises(CorpusError, match="1 database cannot be used"):
        silent(tmp_path / "in", tmp_path / "out")
    assert "file is not a database" in (tmp_path / "out/dropped.jsonl").read_text()


@pytest.mark.parametrize(("option", "value"), [("limit", 0), ("workers", -1), ("seconds", 0)])
def test_numbers_that_make_no_sense(tmp_path: Path, option: str, value: int) -> None:
    with pytest.raises(CorpusError, match=f"{option} is {value}: give a number above 0"):
        silent(own_questions(tmp_path / "in", [GOOD]), tmp_path / "out", **{option: value})


def test_opening_what_is_not_prepared(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="does not exist or is empty: run `sqale-grpo corpus prepare"):
        open_prepared(tmp_path / "nowhere")
    (tmp_path / "staging.work").touch()
    with pytest.raises(CorpusError, match="was not finished: run `sqale-grpo corpus prepare"):
        open_prepared(tmp_path)


HOSTILE = "\x1b[2J\x1b[31mHACK \u202e[bold]"


def test_what_a_data_set_says_is_shown_and_not_obeyed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    database(tmp_path / "in/databases/shop/shop.sqlite")
    record = {"question_id": f"q{HOSTILE}", "db_id": "shop", "question": HOSTILE, "evidence": HOSTILE}
    record |= {"sql": f"{GOOD} OR name = '{HOSTILE}'", "difficulty": HOSTILE}
    json_lines(tmp_path / "in/questions.jsonl", [record])
    silent(tmp_path / "in", tmp_path / "out")
    assert main(["inspect", str(tmp_path / "out")]) == 0
    shown = "".join(capsys.readouterr().out.split())
    assert "\x1b" not in shown and "\u202e" not in shown
    written = "\\x1b[2J\\x1b[31mHACK\\u202e[bold]"
    assert shown.count(written) >= 4, "the id, the question, the evidence and the query"


def test_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own_questions(
        tmp_path / "in", [GOOD, "SELECT name FROM City LIMIT 1", "SELECT name FROM City WHERE id = 9", "SELEC"]
    )
    command = ["prepare", "--corpus", "jsonl", "--source", str(tmp_path / "in"), "--out", str(tmp_path / "out")]
    assert main([*command, "--workers", "1"]) == 0
    shown = capsys.readouterr()
    assert "3 questions of jsonl (train) are ready" in shown.out
    for words in ("read", "kept", "dropped: gold does not execute", "kept but unstable: limit_ties"):
        assert words in shown.err
    assert main(["inspect", str(tmp_path / "out")]) == 0
    report = capsys.readouterr().out
    for words in ("no rows", "33.3%", "short", "very_long", "tables of a database", GOOD):
        assert words in report, words
    assert main(["inspect", str(tmp_path / "in")]) == 2
    assert capsys.readouterr().err.startswith("error: the prepared corpus")


def test_a_missing_and_a_broken_database_cost_their_questions_and_say_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Never the corpus: a download of 33 GB may lack 14 of its 69 databases, and one of them be cut."""
    source = own_questions(tmp_path / "in", [GOOD])
    (source / "broken.sqlite").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:abab\n" * 9)
    names = ("shop", "gone", "broken", "gone")
    records = [{"question_id": f"q{n}", "db_id": name, "question": "?", "sql": GOOD} for n, name in enumerate(names)]
    json_lines(source / "questions.jsonl", records)
    corpus = prepare("jsonl", source, tmp_path / "out", workers=1)
    assert corpus.column("question_id") == ["q0"]
    missing, bad = "no such database", "database cannot be used"
    assert dropped(tmp_path / "out") == {"q1": missing, "q2": bad, "q3": missing}
    shown = "".join(capsys.readouterr().err.split())
    for words in (
        "2 databases are missing or broken, and their 3 questions are dropped",
        f"'gone': no SQLite file for 'gone' at {source}/databases/gone.sqlite",
        "'broken': file is not a database",
        f"dropped ones are listed in {tmp_path}/out/dropped.jsonl, such as q1: no such database",
    ):
        assert "".join(words.split()) in shown, words
