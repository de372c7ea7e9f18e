"""Questions of a new corpus: their files, the split, proposals, more of them; and every mistake in one sentence."""

import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from sqale_grpo.corpus.own.keys import points_at
from sqale_grpo.corpus.own.split import is_test
from sqale_grpo.corpus.own.tables import Column, SourceTable
from tests.corpus.own.conftest import lines, rows
from tests.helpers.company import company_database
from tests.helpers.corpora import database

SPIDER = [{"db_id": "shop", "question": "How many cities?", "query": "SELECT count(*) FROM City", "query_toks": ["x"]}]
BIRD = [
    {
        "db_id": "shop",
        "question_id": 5,
        "question": "How many shops?",
        "evidence": "shops sell",
        "SQL": "SELECT count(*) FROM shop;",
        "difficulty": "simple",
    }
]


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    return database(tmp_path / "shop.sqlite")


def test_questions_of_every_kind_of_file(shop: Path, tmp_path: Path, corpus: Callable[..., int]) -> None:
    files = {
        "spider.json": json.dumps(SPIDER),
        "bird.json": json.dumps(BIRD),
        "mine.csv": 'Question;SQL\nWhich cities?;"SELECT name FROM City"\n',
        "mine.jsonl": '{"text": "How big is Rome?", "gold_sql": "SELECT people FROM City WHERE name = \'Rome\'"}\n',
    }
    words = []
    for name, text in files.items():
        (tmp_path / name).write_text(text)
        words += ["--questions", tmp_path / name]
    assert corpus("new", tmp_path / "own", shop, *words, "--test", 0) == 0
    taken = lines(tmp_path / "own" / "questions.jsonl")
    assert [record["sql"] for record in taken] == [
        "SELECT count(*) FROM City",
        "SELECT count(*) FROM shop",
        "SELECT name FROM City",
        "SELECT people FROM City WHERE name = 'Rome'",
    ]
    assert taken[1] == {
        "question_id": "5",
        "db_id": "shop",
        "question": "How many shops?",
        "sql": "SELECT count(*) FROM shop",
        "evidence": "shops sell",
        "difficulty": "simple",
    }
    assert corpus("check", tmp_path / "own") == 0


def test_a_question_never_changes_sides() -> None:
    sides = [is_test("shop", f"SELECT {n} FROM t", 0.2) for n in range(2_000)]
    assert 320 < sum(sides) < 480
    assert is_test("shop", "SELECT  1\nFROM t;", 0.2) == is_test("shop", "select 1 from t", 0.2)


@pytest.mark.full
def test_proposals_are_looked_over_and_added(tmp_path: Path, corpus: Callable[..., int], capsys) -> None:
    source = company_database(tmp_path / "company.sqlite")
    own = tmp_path / "own"
    assert corpus("new", own, source, "--propose", 40) == 0
    proposed = lines(own / "proposed.jsonl")
    assert len(proposed) == 40 and not (own / "questions.jsonl").exists()
    assert len({record["sql"] for record in proposed}) == 40
    for record in proposed:
        assert 1 <= len(rows(own / "company.sqlite", record["sql"])) <= 50, record
    assert corpus("check", own) == 0
    assert "40 questions, 40 good" in capsys.readouterr().out
    assert corpus("add", own, own / "proposed.jsonl") == 0
    assert len(lines(own / "questions.jsonl")) + len(lines(own / "questions_test.jsonl")) == 40
    assert corpus("add", own, own / "proposed.jsonl") == 0
    assert "0 questions are added" in capsys.readouterr().out


def test_check_names_line_reason_and_remedy(shop: Path, tmp_path: Path, corpus: Callable[..., int], capsys) -> None:
    asked = [
        ("How many cities?", "SELECT count(*) FROM City"),
        ("Which is large?", "SELECT name FROM City ORDER BY people LIMIT 1"),
        ("Who is it?", "SELECT nam FROM City"),
        ("How old is the first shop?", "SELECT date('now') - opened FROM shop WHERE id = 1"),
        ("Are there any in Rome?", "SELECT count(*) > 0 FROM shop WHERE city_id = 1 AND sales > 0"),
        ("Which city is empty?", "SELECT name FROM City WHERE people = 0"),
        ("How many cities?", "SELECT count(*) + 1 FROM City"),
        ("What next?", "SELECT name FROM Citty"),
        ("", "SELECT name FROM City"),
        ("Which large cities?", "SELECT name FROM big_city WHERE people > 2000"),
    ]
    (tmp_path / "own").mkdir()
    shop.rename(tmp_path / "own" / "shop.sqlite")
    text = "".join(json.dumps({"db_id": "shop", "question": q, "sql": sql}) + "\n\n" for q, sql in asked)
    (tmp_path / "own" / "questions.jsonl").write_text(text)
    assert corpus("check", tmp_path / "own") == 1
    told = capsys.readouterr().out.replace(str(tmp_path / "own"), "own")
    found = {
        int(line.split(":")[1]): line
        for line in told.splitlines()
        if line.startswith("own/questions.jsonl:") and " questions" not in line
    }
    assert "weak: rows tie where LIMIT cuts" in found[3]
    assert "dropped: gold does not execute: no such column: nam" in found[5]
    assert "weak: its rows change with the clock" in found[7]
    assert "weak: the same rows come without the condition" in found[9]
    assert "weak: it returns no rows" in found[11]
    assert "weak: line 1 asks the same and has another query" in found[13]
    assert "dropped: unknown table: no such table: Citty" in found[15]
    assert "dropped: no usable phrasing" in found[17]
    assert set(found) == {3, 5, 7, 9, 11, 13, 15, 17}
    assert told.count("\n  -> ") == 8
    assert "10 questions, 2 good, 3 dropped, 5 weak" in told


def test_names_point_at_tables() -> None:
    def table(name: str, key: str) -> SourceTable:
        return SourceTable(name, (Column(key, "INTEGER"),), (key,))

    for column, parent, key, strength in [
        ("customer_id", "customers", "id", 3),
        ("CustomerId", "Customer", "CustomerId", 3),
        ("customer", "customers", "id", 2),
        ("billing_customer_id", "customers", "id", 1),
        ("category_id", "categories", "id", 3),
        ("orderid", "orders", "id", 3),
        ("id", "customers", "id", 0),
        ("quantity", "customers", "id", 0),
    ]:
        assert points_at(column, table(parent, key), key) == strength, column


BAD = {
    "no such source": ((), "nowhere.sqlite", "there is no"),
    "not a database": ((), "text.sqlite", "is another kind of file (or an encrypted database): name a SQLite file"),
    "an empty file": ((), "empty.csv", "is empty: its first line should name the columns"),
    "a broken line": ((), "broken.csv", "broken.csv, line 3: 3 cells where the heading has 2: mend the line"),
    "a quote without end": ((), "quote.csv", "quote.csv, line 2: a record that begins here is broken"),
    "latin-1": ((), "latin.csv", "latin.csv, line 2: not UTF-8"),
    "two encodings": ((), "both.csv", "has two encodings: line 2 is UTF-8, line 3 is not"),
    "two columns of a name": ((), "twice.csv", "line 1: two columns are called 'a': rename one of them"),
    "no tables": ((), "bare.sqlite", "has no tables"),
    "an empty folder": ((), "nothing", "holds no file that ends in .csv, .tsv, .parquet"),
    "no database in an address": ((), "postgresql://me@localhost/", "names no database"),
    "a broken Parquet file": ((), "bad.parquet", "cannot be read as Parquet"),
    "no question file": (("--questions", "nowhere.csv"), "shop.sqlite", "there is no file"),
    "a question without SQL": (
        ("--questions", "nosql.csv"),
        "shop.sqlite",
        "line 3: a question without SQL: 'sql' is empty",
    ),
    "no column of SQL": (
        ("--questions", "text.csv"),
        "shop.sqlite",
        "a question without SQL: there is no 'sql' or 'query'",
    ),
    "an unknown database": (
        ("--questions", "other.csv"),
        "shop.sqlite",
        "line 2: its database 'other' is none of the sources",
    ),
    "an unknown dialect": (
        ("--questions", "good.csv", "--dialect", "klingon"),
        "shop.sqlite",
        "there is no SQL dialect 'klingon'",
    ),
    "a dialect that nothing runs": (
        ("--questions", "good.csv", "--dialect", "tsql"),
        "shop.sqlite",
        "the SQL is tsql and shop is sqlite",
    ),
}
FILES: dict[str, bytes] = {
    "text.sqlite": b"no database",
    "empty.csv": b"",
    "broken.csv": b"a,b\n1,2\n1,2,3\n",
    "quote.csv": b'a,b\n1,"2\n3,4\n',
    "latin.csv": "a,b\n1,Köln\n".encode("latin1"),
    "both.csv": "a,b\n1,Köln\n".encode() + "2,Köln\n".encode("latin1"),
    "twice.csv": b"a,A\n1,2\n",
    "bad.parquet": b"PAR1 and no more",
    "nosql.csv": b"question,sql\nHow?,SELECT 1 FROM City\nWhy?,\n",
    "text.csv": b"question,answer\nHow?,42\n",
    "other.csv": b"db_id,question,sql\nother,How?,SELECT 1\n",
    "good.csv": b"question,sql\nHow many?,SELECT count(*) FROM City\n",
}


@pytest.mark.parametrize("name", BAD)
def test_every_mistake_is_one_sentence_and_nothing_is_left(
    name: str, shop: Path, tmp_path: Path, corpus: Callable[..., int], capsys, monkeypatch
) -> None:
    if "address" in name:
        pytest.importorskip("psycopg")
    monkeypatch.chdir(tmp_path)
    for file, content in FILES.items():
        Path(file).write_bytes(content)
    Path("nothing").mkdir()
    database(Path("bare.sqlite"), "CREATE TABLE t (a); DROP TABLE t;")
    before = sorted(tmp_path.iterdir())
    words, source, sentence = BAD[name]
    assert corpus("new", "own", source, *words) == 2
    told = capsys.readouterr().err.strip().splitlines()[-1]
    assert told.startswith("error: ") and sentence in told, told
    assert sorted(tmp_path.iterdir()) == before


def test_a_folder_that_is_there_is_not_touched(shop: Path, tmp_path: Path, corpus: Callable[..., int], capsys) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "mine.txt").write_text("mine")
    assert corpus("new", tmp_path / "own", shop) == 2
    assert "is there already and not empty" in capsys.readouterr().err
    assert [path.name for path in (tmp_path / "own").iterdir()] == ["mine.txt"]


def test_two_sources_of_one_name(shop: Path, tmp_path: Path, corpus: Callable[..., int], capsys) -> None:
    twin = database(tmp_path / "other" / "shop.sqlite")
    assert corpus("new", tmp_path / "own", shop, twin) == 2
    assert "would both be the database 'shop': name them, as in shop_2=" in capsys.readouterr().err
    assert corpus("new", tmp_path / "own", shop, f"shop_2={twin}") == 0
    assert sorted(path.name for path in (tmp_path / "own").glob("*.sqlite")) == ["shop.sqlite", "shop_2.sqlite"]


@pytest.mark.full
def test_keys_are_asked_about_on_a_terminal(tmp_path: Path) -> None:
    source = database(
        tmp_path / "shop.sqlite",
        "CREATE TABLE city (id INTEGER PRIMARY KEY);"
        "CREATE TABLE shop (id INTEGER PRIMARY KEY, city_id INT, cityid INT);"
        "INSERT INTO city VALUES (1), (2); INSERT INTO shop VALUES (1, 1, 2);",
    )
    near, far = pty.openpty()
    words = [sys.executable, "-m", "sqale_grpo", "corpus", "new", str(tmp_path / "own"), str(source)]
    program = subprocess.Popen(words, stdin=far, stdout=far, stderr=subprocess.DEVNULL, close_fds=True)
    os.close(far)
    told = b""
    answers = iter([b"seven\n", b"2\n"])
    try:
        while True:
            told += os.read(near, 4_096)
            if told.endswith(b"] "):
                os.write(near, next(answers))
                told += b"\n"
    except OSError:  # the other end is closed
        pass
    assert program.wait(60) == 0, told
    os.close(near)
    assert b"1. shop.city_id -> city.id" in told and b"give numbers of the list" in told
    keys = rows(tmp_path / "own" / "shop.sqlite", "SELECT \"from\" FROM pragma_foreign_key_list('shop')")
    assert keys == [("cityid",)]
