"""What people get wrong on the road, one mistake a case: one sentence with thing, place and mend, and nothing written.

Those of ``corpus new``'s sources are in ``test_new.py``.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import duckdb
import pytest

from sqale_grpo import commands
from tests.helpers.corpora import database, json_lines

pytestmark = pytest.mark.full

GOOD = {"db_id": "shop", "question": "How many cities?", "sql": "SELECT count(*) FROM City"}
CHECK = "corpus check own"
TRAIN = "train own/cpu corpus.source=own --dry-run"
EVALUATE = "evaluate eval/jsonl model=demo corpus.source=own --dry-run"


class Mistake(NamedTuple):
    """What is wrong in the folder ``own``, the command that meets it, and the sentence."""

    spoil: Callable[[Path], object]
    words: str
    sentence: str
    status: int = 2


def nothing(own: Path) -> None:
    """The mistake is in the command."""


def without(name: str) -> Callable[[Path], None]:
    return lambda own: (own / name).unlink()


def text(content: str | bytes, name: str = "questions.jsonl") -> Callable[[Path], int]:
    data = content.encode() if isinstance(content, str) else content
    return lambda own: (own / name).write_bytes(data)


def question(**changed: object) -> Callable[[Path], int]:
    return text(json.dumps({**GOOD, **changed}) + "\n")


def beside(name: str, content: str = "") -> Callable[[Path], int]:
    return lambda own: (own.parent / name).write_text(content)


def in_duckdb(own: Path) -> None:
    """A question that DuckDB answers and that has no like in SQLite, and its database."""
    with duckdb.connect(str(own.parent / "shop.duckdb")) as connection:
        connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, a INTEGER[])")
        connection.execute("INSERT INTO t VALUES (1, [1, 2])")
    beside("asked.csv", "question,sql\nWhich?,SELECT list_transform(a; x -> x) FROM t\n")(own)


DUCKDB = "corpus new made shop.duckdb --questions asked.csv"
MISTAKES = {
    # corpus check
    "check: no folder": Mistake(nothing, "corpus check nowhere", "no folder nowhere: make one with `sqale-grpo corpus"),
    "check: a file": Mistake(nothing, f"{CHECK}/shop.sqlite", "is a file: name the folder that holds it, own"),
    "check: no questions": Mistake(
        lambda own: [path.unlink() for path in own.glob("questions*")], CHECK, "own has no questions.jsonl: add"
    ),
    "check: an empty file": Mistake(text(""), CHECK, "questions.jsonl holds no question: add some with"),
    "check: broken JSON": Mistake(text('{"db_id": \n'), CHECK, "questions.jsonl, line 1: not valid JSON"),
    "check: a list": Mistake(text("[1]\n"), CHECK, "line 1: expected a JSON object, not list: one object a line"),
    "check: latin-1": Mistake(
        text('{"question": "Köln"}'.encode("latin1")), CHECK, "line 1: not UTF-8: convert the file, as in `iconv -f lat"
    ),
    "check: UTF-16": Mistake(text(json.dumps(GOOD).encode("utf-16")), CHECK, "as in `iconv -f utf-16 -t utf-8`"),
    "check: another key": Mistake(
        text('{"db": "shop"}'), CHECK, "questions.jsonl, line 1: no key 'db_id' (found: db): add it"
    ),
    "check: no key for SQL": Mistake(
        text('{"db_id": "shop", "question": "Why?"}'), CHECK, "line 1: no key 'sql' (found: db_id, question): add it"
    ),
    "check: a database's name": Mistake(
        question(db_id="shopp"), CHECK, "questions.jsonl:1: dropped: no such database: 'shopp'\n  -> mend its db_id", 1
    ),
    "check: no database": Mistake(
        without("shop.sqlite"), CHECK, "questions.jsonl:1: dropped: no such database: 'shop'\n  -> mend its db_id", 1
    ),
    "check: no SQL": Mistake(question(sql=""), CHECK, "jsonl:1: dropped: no gold SQL\n  -> write its SQL", 1),
    "check: a change of the data": Mistake(
        question(sql="DELETE FROM City"), CHECK, "jsonl:1: dropped: gold does not execute: not authorized\n  -> mend", 1
    ),
    "check: two statements": Mistake(
        question(sql="SELECT 1; SELECT 2"), CHECK, "can only execute one statement at a time.\n  -> mend the SQL", 1
    ),
    "check: one id twice": Mistake(
        text((json.dumps({**GOOD, "question_id": "a"}) + "\n") * 2),
        CHECK,
        "jsonl:2: dropped: duplicate question_id\n  -> give it another question_id, or delete the line",
        1,
    ),
    "check: an empty database": Mistake(
        text("", "shop.sqlite"), CHECK, "database cannot be used: own/shop.sqlite is not a SQLite database", 1
    ),
    "check: text as a database": Mistake(
        text("no database " * 99, "shop.sqlite"), CHECK, "file is not a database\n  -> replace the database's file", 1
    ),
    # train
    "train: no source": Mistake(nothing, "train own/cpu --dry-run", "holds no prepared corpus; set corpus.source=PATH"),
    "train: another source": Mistake(
        nothing, "train own/cpu corpus.source=nowhere --dry-run", "with `sqale-grpo corpus new nowhere SOURCE`"
    ),
    "train: a database as the source": Mistake(
        nothing, "train own/cpu corpus.source=own/shop.sqlite --dry-run", "`sqale-grpo corpus new my_data own/shop.sql"
    ),
    "train: no questions": Mistake(
        without("questions.jsonl"), TRAIN, "no file own/questions.jsonl: it should hold the train questions"
    ),
    "train: an empty file": Mistake(text("\n"), TRAIN, "own/questions.jsonl holds no question: add some with"),
    "train: a broken line": Mistake(text("{\n"), TRAIN, "own/questions.jsonl, line 1: not valid JSON"),
    "train: no database": Mistake(without("shop.sqlite"), TRAIN, "such as 'shop': put it there as shop.sqlite"),
    "train: few questions": Mistake(question(), TRAIN, "fewer than the 4 of one update; set train.questions_per_updat"),
    "train: a difficulty": Mistake(
        nothing, f"{TRAIN} corpus.difficulties=[hard]", "it names none: set corpus.difficulties=[]"
    ),
    "train: no loader": Mistake(
        nothing, "train demo corpus.source=own --dry-run", "is a corpus of your own, and corpus.name=demo generates"
    ),
    "train: a key": Mistake(nothing, f"{TRAIN} train.learning_rat=1", "did you mean 'train.learning_rate'?"),
    "train: a section": Mistake(nothing, f"{TRAIN} trian.updates=1", "unknown key 'trian'; the sections are name,"),
    "train: a value": Mistake(nothing, f"{TRAIN} train.updates=many", "train.updates must be int, not 'many'"),
    "train: a bound": Mistake(nothing, f"{TRAIN} train.updates=-1", "train.updates must be at least 1, not -1"),
    "train: a choice": Mistake(nothing, f"{TRAIN} corpus.name=json", "corpus.name must be one of sqale, bird,"),
    "train: an option": Mistake(nothing, f"{TRAIN} --dryrun", "unrecognized arguments: --dryrun"),
    "train: no file": Mistake(nothing, "train --dry-run", "no config file given; start from configs/recipe.yaml"),
    "train: a file's name": Mistake(nothing, "train own/gpu42 --dry-run", "did you mean own/gpu24"),
    "train: broken YAML": Mistake(beside("my.yaml", "a: [\n"), "train my.yaml --dry-run", "my.yaml is no valid YAML"),
    "train: a model": Mistake(nothing, f"{TRAIN} model.path=runs/nope", "there is no folder runs/nope; name a run's"),
    "train: no model in a folder": Mistake(nothing, f"{TRAIN} model.path=own", "own is no run's folder and holds"),
    "train: a place": Mistake(beside("README.md"), f"{TRAIN} output=README.md", "a part of this path is a file"),
    "train: prompts": Mistake(
        nothing, f"{TRAIN} env.prompts=my.json", "env.prompts: no prompts file at my.json; a cop"
    ),
    # evaluate
    "evaluate: a run": Mistake(nothing, "evaluate own --dry-run", "a model is named by model=own"),
    "evaluate: a run's name": Mistake(
        lambda own: (own.parent / "runs" / "own").mkdir(parents=True),
        f"{EVALUATE} model=runs/owns",
        "there is no folder runs/owns; runs/ has own; name",
    ),
    "evaluate: a training's key": Mistake(
        nothing, f"{EVALUATE} model.path=demo", "model is one value, and there is no model.path: write model="
    ),
    "evaluate: no held-out questions": Mistake(
        without("questions_test.jsonl"), EVALUATE, "no file own/questions_test.jsonl: it should hold the test questions"
    ),
    "evaluate: a broken line": Mistake(
        text("{\n", "questions_test.jsonl"), EVALUATE, "own/questions_test.jsonl, line 1: not valid JSON"
    ),
    "evaluate: a backend": Mistake(nothing, f"{EVALUATE} backend=vlm", "backend must be one of transformers, vllm,"),
    "evaluate: a schema": Mistake(nothing, f"{EVALUATE} schema=all", "schema must be gold, distractors:N, full or"),
    "evaluate: a place": Mistake(beside("a.md"), f"{EVALUATE} output=a.md", "a part of this path is a file: choose"),
    # corpus new and add
    "new: no Postgres": Mistake(
        nothing, "corpus new made postgresql://me@127.0.0.1:1/shop", "postgres://127.0.0.1:1/shop cannot be opened ("
    ),
    "new: no MySQL": Mistake(
        nothing, "corpus new made mysql://me@127.0.0.1:1/shop", "start the server, or mend the address, as in mysql://"
    ),
    "new: what SQLite has not": Mistake(in_duckdb, DUCKDB, "asked.csv, line 2: "),
    "new: an encoding": Mistake(
        beside("a.csv", "a\n1\n"), "corpus new made a.csv --encoding latin-99", "there is no encoding 'latin-99': name"
    ),
    "new: a share": Mistake(nothing, "corpus new made own/shop.sqlite --test 2", "'2' is no share from 0 to under 1"),
    "add: no file": Mistake(nothing, "corpus add own nowhere.csv", "there is no file nowhere.csv: name a CSV, JSON or"),
    "add: no folder": Mistake(
        beside("a.csv", "question,sql\nWhy?,SELECT 1\n"), "corpus add nowhere a.csv", "there is no folder nowhere: make"
    ),
    "add: another dialect": Mistake(
        beside("a.csv", "question,sql\nWhy?,SELECT 1\n"),
        "corpus add own a.csv --dialect postgres",
        "the SQL is postgres: name the database that it was written for, shop=SOURCE",
    ),
    "add: a question without SQL": Mistake(
        beside("a.csv", "question,sql\nWhy?,\n"), "corpus add own a.csv", "line 2: a question without SQL"
    ),
    "add: a database's name": Mistake(
        beside("a.csv", "db_id,question,sql\nshopp,Why?,SELECT 1\n"),
        "corpus add own a.csv",
        "its database 'shopp' is none of the sources, which are shop",
    ),
}


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A corpus with nothing wrong, in the working folder."""
    monkeypatch.chdir(tmp_path)
    for name in ("WORLD_SIZE", "RANK"):
        monkeypatch.delenv(name, raising=False)
    database(tmp_path / "own" / "shop.sqlite")
    json_lines(tmp_path / "own" / "questions.jsonl", [{**GOOD, "question": f"How many, {n}?"} for n in range(8)])
    json_lines(tmp_path / "own" / "questions_test.jsonl", [GOOD])
    return tmp_path / "own"


def content(folder: Path) -> dict[Path, bytes | None]:
    """Everything below a folder."""
    return {path: path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


def run(words: str) -> int:
    """The command's exit status; that of argparse too."""
    try:
        return commands.main(words.split())
    except SystemExit as end:
        return int(end.code or 0)


@pytest.mark.parametrize("name", MISTAKES)
def test_each_is_told_in_a_sentence_and_nothing_is_written(
    name: str, own: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mistake = MISTAKES[name]
    mistake.spoil(own)
    before = content(own.parent)
    assert run(mistake.words) == mistake.status
    told = capsys.readouterr()
    if mistake.status == 1:  # of questions that a check finds, each with its line and what to do
        assert mistake.sentence in told.out and not told.err
    else:
        errors = [line for line in told.err.splitlines() if "error: " in line]
        assert len(errors) == 1 and mistake.sentence in errors[0], told.err
        assert "next: " not in told.out and told.out.count("\n") < 3, "no plan before the mistake"
    assert content(own.parent) == before


@pytest.mark.parametrize("words", [CHECK, TRAIN, EVALUATE])
def test_the_same_commands_take_what_is_right(words: str, own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = content(own.parent)
    assert run(words) == 0
    told = capsys.readouterr()
    assert not told.err and content(own.parent) == before
    if words == EVALUATE:
        assert "1 questions x 1 = 1," in told.out, "as many as there are, not as many as were asked for"
