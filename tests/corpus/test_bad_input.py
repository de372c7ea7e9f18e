"""A person's mistakes: each is one sentence, and the same command works once it is put right."""

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from sqale_grpo.corpus import CorpusError, PreparedCorpus, gold_worker, open_prepared, prepare
from sqale_grpo.corpus.workers import GoldWorker
from tests.helpers.corpora import (
    GOOD,
    SHOP,
    database,
    dropped,
    json_lines,
    own_questions,
    sqale_folder,
    sqale_question,
    sqale_schema,
)
from tests.helpers.programs import program

pytestmark = pytest.mark.full

main = program("corpus")


def silent(source: Path, out: Path) -> PreparedCorpus:
    return prepare("jsonl", source, out, progress=False, workers=1)


def without_database(folder: Path) -> None:
    own_questions(folder, [GOOD])
    (folder / "databases/shop/shop.sqlite").unlink()


def with_a_broken_line(folder: Path) -> None:
    (own_questions(folder, [GOOD]) / "questions.jsonl").write_text('{"db_id": \n')


def without_a_good_question(folder: Path) -> None:
    own_questions(folder, ["SELECT no_column FROM City"])


def with_text_for_a_database(folder: Path) -> None:
    own_questions(folder, [GOOD])
    (folder / "databases/shop/shop.sqlite").write_text("no database, but long enough to be looked at " * 9)


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        (without_database, "1 no such database, such as q0: no SQLite file for 'shop' at .*databases/shop.sqlite"),
        (with_a_broken_line, "line 1: not valid JSON"),
        (without_a_good_question, "'jsonl' is empty, no question is left of 1: 1 gold does not execute"),
        (with_text_for_a_database, "'jsonl' is empty, no question is left of 1: 1 database cannot be used"),
    ],
)
def test_the_same_command_works_after_the_mistake_is_put_right(
    tmp_path: Path, mistake: Callable[[Path], None], message: str
) -> None:
    source, out = tmp_path / "in", tmp_path / "out"
    mistake(source)
    for _ in range(2):
        with pytest.raises(CorpusError, match=message):
            silent(source, out)
    (source / "databases/shop/shop.sqlite").unlink(missing_ok=True)
    own_questions(source, [GOOD])
    assert silent(source, out).gold_sqls() == [GOOD]


def test_work_on_other_inputs_is_not_thrown_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hours of verdicts may lie in an unfinished folder: another question file is an error there."""
    source, out = own_questions(tmp_path / "in", [GOOD]), tmp_path / "out"
    monkeypatch.setattr(
        "sqale_grpo.corpus.preparation.write_parquet", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt)
    )
    with pytest.raises(KeyboardInterrupt):
        silent(source, out)
    monkeypatch.undo()
    json_lines(source / "questions.jsonl", [{"db_id": "shop", "question": "?", "sql": GOOD}])
    with pytest.raises(CorpusError, match="the files of the source have changed: delete that folder"):
        silent(source, out)


def test_the_result_does_not_go_into_the_source(tmp_path: Path) -> None:
    source = own_questions(tmp_path / "in", [GOOD])
    before = sorted(source.rglob("*"))
    with pytest.raises(CorpusError, match="is the folder of the source: name another --out"):
        silent(source, source)
    assert sorted(source.rglob("*")) == before


def test_files_of_something_else_are_left_alone(tmp_path: Path) -> None:
    source = own_questions(tmp_path / "in", [GOOD])
    other = database(tmp_path / "out/databases/shop.sqlite", "CREATE TABLE precious (a)")
    with pytest.raises(CorpusError, match=r"out/databases holds files that are not of this preparation: name another"):
        silent(source, tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["databases"]
    other.unlink()
    assert len(silent(source, tmp_path / "out")) == 1


@pytest.mark.parametrize("out", ["file", "file/below", "/proc/nowhere"])
def test_a_place_that_cannot_be_written(tmp_path: Path, out: str) -> None:
    (tmp_path / "file").write_text("something else")
    with pytest.raises(CorpusError, match=r"cannot write .*: .*; name another --out"):
        silent(own_questions(tmp_path / "in", [GOOD]), tmp_path / out)


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"key": {}}', "\0"])
def test_a_damaged_marker(tmp_path: Path, text: str) -> None:
    source, out = own_questions(tmp_path / "in", [GOOD]), tmp_path / "out"
    silent(source, out)
    (out / "prepared.json").write_text(text)
    for read in (lambda: open_prepared(out), lambda: silent(source, out)):
        with pytest.raises(CorpusError, match=r"prepared\.json is damaged: delete .*out and prepare again"):
            read()


@pytest.mark.parametrize("spoil", [Path.unlink, lambda path: path.write_text("not parquet")])
def test_a_damaged_index(tmp_path: Path, spoil: Callable[[Path], object]) -> None:
    source, out = own_questions(tmp_path / "in", [GOOD]), tmp_path / "out"
    silent(source, out)
    spoil(out / "index.parquet")
    for read in (lambda: open_prepared(out), lambda: silent(source, out)):
        with pytest.raises(CorpusError, match=r"index\.parquet .*: delete .*out and prepare again"):
            read()


def test_the_command_line_says_what_the_system_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device", "index.parquet")

    monkeypatch.setattr("sqale_grpo.corpus.preparation.write_parquet", full)
    source = own_questions(tmp_path / "in", [GOOD])
    command = ["prepare", "--corpus", "jsonl", "--source", str(source), "--out", str(tmp_path / "out")]
    assert main([*command, "--workers", "1"]) == 2
    assert capsys.readouterr().err.splitlines()[-1].startswith("error: index.parquet: no space left on device: free")


def test_names_that_are_not_utf_8_cost_nothing_but_themselves(tmp_path: Path) -> None:
    source = own_questions(tmp_path / "in", [GOOD])
    with sqlite3.connect(database(tmp_path / "odd.sqlite", SHOP + "CREATE TABLE strange (a);")) as connection:
        connection.execute("PRAGMA writable_schema = ON")
        values = (b"\xe9\xe9", b"\xe9\xe9", b"CREATE TABLE \xe9\xe9 (a)")
        set_ = "name = CAST(? AS TEXT), tbl_name = CAST(? AS TEXT), sql = CAST(? AS TEXT)"
        connection.execute(f"UPDATE sqlite_master SET {set_} WHERE name = 'strange'", values)
    connection.close()
    (tmp_path / "odd.sqlite").replace(source / "databases/shop/shop.sqlite")
    (record,) = silent(source, tmp_path / "out").databases()
    assert (record["tables"], record["foreign_keys"], record["rows"]) == (4, 1, -1)


def test_rows_that_the_library_cannot_store_are_named(tmp_path: Path) -> None:
    """A lone surrogate in a value ends ``sqale.build_database``: its database is dropped with that reason."""
    ddl = "CREATE TABLE t (a TEXT)"
    schemas = [sqale_schema("bad", ddl, {"t": [{"a": "\ud800"}]}), sqale_schema("good", ddl, {"t": [{"a": "x"}]})]
    questions = [sqale_question(n, name, "SELECT a FROM t") for n, name in enumerate(("bad", "good"))]
    folder = sqale_folder(tmp_path / "in", questions, [schemas])
    corpus = prepare("sqale", folder, tmp_path / "out", workers=1, progress=False)
    assert corpus.column("question_id") == ["s1"] and dropped(tmp_path / "out") == {"s0": "database cannot be used"}
    (line,) = (tmp_path / "out/dropped.jsonl").read_text().splitlines()
    assert "surrogates not allowed" in json.loads(line)["detail"]


def test_ddl_reaches_no_other_file(tmp_path: Path) -> None:
    """A data set's schemas are run as they come; one that opens another file of this machine must not."""
    other = database(tmp_path / "other.sqlite")
    before = other.read_bytes()
    ddl = f"""
        CREATE TABLE t (a TEXT); -- a comment
        /* another */ ATTACH '{other}' AS x;
        CREATE TABLE x.made (a);
        DROP TABLE x.shop;
        VACUUM INTO '{tmp_path / "copy.sqlite"}';
        EXPLAIN PRAGMA journal_mode = WAL;
        CREATE TABLE u (b TEXT)"""
    folder = sqale_folder(
        tmp_path / "in",
        [sqale_question(0, "a", "SELECT a FROM t, u")],
        [[sqale_schema("a", ddl, {"t": [{"a": "x"}], "u": [{"b": "y"}]})]],
    )
    corpus = prepare("sqale", folder, tmp_path / "out", workers=1, progress=False)
    assert corpus.question(0).gold_tables == ("t", "u")
    assert other.read_bytes() == before and not (tmp_path / "copy.sqlite").exists()


def test_a_schema_that_never_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x FROM n) SELECT max(x) AS m FROM n"
    schemas = [
        sqale_schema("bad", f"CREATE TABLE t AS {endless}", {}),
        sqale_schema("good", "CREATE TABLE t (a TEXT)", {}),
    ]
    questions = [sqale_question(n, name, "SELECT 1 FROM t") for n, name in enumerate(("bad", "good"))]
    folder = sqale_folder(tmp_path / "in", questions, [schemas])
    monkeypatch.setattr("sqale_grpo.corpus.preparation.BUILD_SECONDS", 1.0)
    corpus = prepare("sqale", folder, tmp_path / "out", workers=1, progress=False)
    assert corpus.column("question_id") == ["s1"] and dropped(tmp_path / "out") == {"s0": "database cannot be used"}
    assert [path.name for path in (tmp_path / "out/databases").iterdir()] == ["good.sqlite"]


FILLS_THE_DISK = """
    CREATE TABLE t AS
    WITH n(x) AS (VALUES(1) UNION ALL SELECT x + 1 FROM n WHERE x < 100) SELECT zeroblob(100000) FROM n
"""


def test_a_schema_that_fills_the_disk_is_stopped_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gold_worker, "BUILD_BYTES", 1 << 20)
    with pytest.raises(OSError, match="its file would pass 1 MB"):
        gold_worker.make_database(sqale_schema("big", FILLS_THE_DISK, {}), tmp_path / "big.sqlite", 60.0)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "free.file").write_bytes(bytes(2 << 20))  # this process' own bound is what it was


def test_a_build_that_is_killed_leaves_no_file(tmp_path: Path) -> None:
    """The alarm ends the process in the middle of the build: whoever started it removes what it wrote."""
    endless = "CREATE TABLE t AS WITH n(x) AS (VALUES(1) UNION ALL SELECT x + 1 FROM n) SELECT zeroblob(1000) FROM n"
    worker = GoldWorker()
    job = gold_worker.Job(
        sqale_schema("big", endless, {}), tmp_path / "big.sqlite", ((1, "SELECT 1 FROM t"),), 1.0, build_seconds=0.6
    )
    try:
        assert "crashed, or ran out of memory or time" in worker.check(job).error
    finally:
        worker.close()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("encoding", ["UTF-8", "UTF-16le", "UTF-16be"])
def test_keys_are_counted_in_every_encoding(tmp_path: Path, encoding: str) -> None:
    source = own_questions(tmp_path / "in", ["SELECT a FROM straße"])
    path = source / "databases/shop/shop.sqlite"
    path.unlink()
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(
            f"PRAGMA encoding = '{encoding}'; CREATE TABLE t(id INTEGER PRIMARY KEY);"
            "CREATE TABLE straße(a REFERENCES t(id)); INSERT INTO t VALUES (1); INSERT INTO straße VALUES (1)"
        )
    (record,) = silent(source, tmp_path / "out").databases()
    assert (record["tables"], record["foreign_keys"], record["rows"]) == (2, 1, 2)
