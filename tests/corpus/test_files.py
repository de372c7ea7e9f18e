"""How prepared SQLite files come about: links, recovered copies, names."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from sqale_grpo.corpus import files
from sqale_grpo.corpus.files import candidates, copy_database, file_name, fingerprint, locate
from sqale_grpo.corpus.gold import GoldConnection
from tests.helpers.corpora import database


def rows(path: Path) -> list[tuple]:
    connection = GoldConnection(path)
    try:
        return connection.rows("SELECT name FROM City ORDER BY id", 5, 100)
    finally:
        connection.close()


def test_a_prepared_file_does_not_change_with_its_source(tmp_path: Path) -> None:
    source = database(tmp_path / "a.sqlite")
    copy_database(source, tmp_path / "b.sqlite")
    copy_database(source, tmp_path / "b.sqlite")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.sqlite", "b.sqlite"]
    with closing(sqlite3.connect(source, isolation_level=None)) as program:
        program.execute("UPDATE City SET name = 'other'")
    assert rows(tmp_path / "b.sqlite")[0] == ("Rome",)


def test_a_large_file_is_named_by_a_symbolic_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = database(tmp_path / "a.sqlite")
    monkeypatch.setattr(files, "COPIED_BYTES", 100)
    monkeypatch.setattr(files, "cloned", lambda *_: False)  # as on a file system without clones
    copy_database(source, tmp_path / "b.sqlite")
    assert (tmp_path / "b.sqlite").is_symlink() and rows(tmp_path / "b.sqlite")[0] == ("Rome",)


def test_a_link_to_a_file_with_a_log_is_copied_with_the_log(tmp_path: Path) -> None:
    source = database(tmp_path / "in/a.sqlite")
    (tmp_path / "a.sqlite").symlink_to(source)
    with closing(sqlite3.connect(source, isolation_level=None)) as writer:
        writer.execute("PRAGMA journal_mode = WAL")
        writer.execute("INSERT INTO City VALUES (9, 'Late', 1)")
        copy_database(tmp_path / "a.sqlite", tmp_path / "out.sqlite")
    assert rows(tmp_path / "out.sqlite")[-1] == ("Late",)


def test_write_ahead_log_is_recovered_into_a_copy(tmp_path: Path) -> None:
    """The newest rows are in the log alone; the source stays as it is to the byte."""
    source = database(tmp_path / "in/a.sqlite")
    writer = sqlite3.connect(source, isolation_level=None)
    writer.execute("PRAGMA journal_mode = WAL")
    writer.execute("INSERT INTO City VALUES (9, 'Late', 1)")
    before = {path.name: path.read_bytes() for path in source.parent.iterdir() if path.suffix != ".sqlite-shm"}
    assert b"Late" not in source.read_bytes()
    copy_database(source, tmp_path / "out.sqlite")
    assert rows(tmp_path / "out.sqlite")[-1] == ("Late",)
    assert (tmp_path / "out.sqlite").read_bytes()[18:20] == b"\x01\x01", "still in WAL mode"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "out.sqlite"]
    assert before == {path.name: path.read_bytes() for path in source.parent.iterdir() if path.suffix != ".sqlite-shm"}
    writer.close()


def test_hot_journal_is_rolled_back_in_a_copy(tmp_path: Path) -> None:
    """A writer that died in the middle left half of its pages in the file and the old ones in the journal."""
    source = database(tmp_path / "in/a.sqlite")
    writer = sqlite3.connect(source, isolation_level=None)
    writer.execute("PRAGMA cache_size = 1")
    writer.execute("PRAGMA cache_spill = 1")
    writer.execute("BEGIN")
    writer.execute("UPDATE City SET name = 'half'")
    many = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n LIMIT 20000) SELECT * FROM n"
    writer.execute(f"CREATE TABLE big AS {many}")
    crashed = tmp_path / "crashed"
    crashed.mkdir()
    for path in source.parent.iterdir():
        (crashed / path.name).write_bytes(path.read_bytes())
    writer.execute("ROLLBACK")
    writer.close()
    assert (crashed / "a.sqlite-journal").stat().st_size > 0
    copy_database(crashed / "a.sqlite", tmp_path / "out.sqlite")
    assert rows(tmp_path / "out.sqlite")[0] == ("Rome",)


def test_wal_mode_without_a_log_opens_as_immutable(tmp_path: Path) -> None:
    source = database(tmp_path / "a.sqlite")
    connection = sqlite3.connect(source)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.close()
    source.chmod(0o444)
    copy_database(source, tmp_path / "b.sqlite")
    assert rows(tmp_path / "b.sqlite")[0] == ("Rome",)


@pytest.mark.parametrize(
    "db_id", ["shop", "farmer's_market", "Süd & Nord", "a/b", "../up", ".hidden", "50%", "a%2Fb", "x" * 9]
)
def test_names_are_safe_and_differ(tmp_path: Path, db_id: str) -> None:
    name = file_name(db_id)
    assert name.endswith(".sqlite") and "/" not in name and not name.startswith(".")
    others = {file_name(other) for other in ("shop ", "a_b", "a/b ", "50%25", "up")}
    assert name not in others
    assert (db_id.isidentifier() and name == f"{db_id}.sqlite") or not db_id.isidentifier()


def test_fingerprint_follows_content_not_place(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    for folder in (one, two):
        folder.mkdir()
        (folder / "questions.jsonl").write_text("same")
    os.utime(two / "questions.jsonl", (1, 1))
    assert fingerprint([one / "questions.jsonl"]) == fingerprint([two / "questions.jsonl"])
    (two / "questions.jsonl").write_text("else")
    assert fingerprint([one / "questions.jsonl"]) != fingerprint([two / "questions.jsonl"])
    path = database(tmp_path / "a.sqlite")
    before = fingerprint([path])
    os.utime(path, (1, 1))
    assert fingerprint([path]) != before


def test_candidates_are_what_locate_finds(tmp_path: Path) -> None:
    """Flat or in a folder of its own, either ending, logs too; a symbolic link to a folder counts as a folder."""
    flat, own, other = tmp_path / "a.sqlite", tmp_path / "b/b.db", tmp_path / "elsewhere/c/c.sqlite"
    for path in (flat, own, other, tmp_path / "b/deep/d.sqlite", tmp_path / "notes.txt"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    Path(f"{flat}-wal").touch()
    (tmp_path / "c").symlink_to(other.parent)
    assert candidates([tmp_path, tmp_path / "nowhere"]) == [flat, Path(f"{flat}-wal"), own, tmp_path / "c/c.sqlite"]
    assert [locate(db_id, [tmp_path]) for db_id in "abcd"] == [flat, own, tmp_path / "c/c.sqlite", None]
