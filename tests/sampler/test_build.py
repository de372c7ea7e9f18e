"""A built database holds exactly the chosen tables, as they are in the source, by both ways of building."""

import random
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from sqale_grpo.env.schema import SchemaGraph
from sqale_grpo.sampler import build_database, open_episode_database
from tests.helpers.databases import ZOO, ZOO_TABLES, catalog, connect, contents, rows, write_database
from tests.sampler.conftest import Opener

FORMS = {
    "plain": (),
    "utf16le": ("encoding = 'UTF-16le'",),
    "utf16be": ("encoding = 'UTF-16be'",),
    "small pages": ("page_size = 512",),
    "large pages": ("page_size = 65536",),
    "auto-vacuum": ("auto_vacuum = FULL",),
    "log mode": ("journal_mode = WAL",),
}


@pytest.fixture(params=FORMS.values(), ids=FORMS.keys())
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return write_database(tmp_path / "zoo.sqlite", ZOO, *request.param)


def test_all_tables_arrive_unchanged_in_the_order_given(source: Path, opener: Opener) -> None:
    order = random.Random(3).sample(ZOO_TABLES, len(ZOO_TABLES))
    with opener(source, order) as path:
        assert list(SchemaGraph.from_file(path).tables) == order
        for table in order:
            assert contents(path, table) == contents(source, table), table
            assert catalog(path, table) == catalog(source, table), table
        assert SchemaGraph.from_file(path).foreign_keys
        for setting in ("encoding", "page_size", "user_version"):
            assert rows(path, f"PRAGMA {setting}") == rows(source, f"PRAGMA {setting}")


def test_a_copy_is_a_sound_file_of_its_own(source: Path, tmp_path: Path) -> None:
    out = build_database(source, ZOO_TABLES, tmp_path / "out.sqlite")
    source.unlink()
    assert rows(out, "PRAGMA integrity_check") == [(b"ok",)]
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("out")] == ["out.sqlite"]


@pytest.mark.parametrize("table", ZOO_TABLES)
def test_one_table_alone_is_all_that_exists(zoo: Path, opener: Opener, table: str) -> None:
    with opener(zoo, [table]) as path:
        assert SchemaGraph.from_file(path).tables == (table,)
        assert SchemaGraph.from_file(path).views == (("cheap",) if table == "book" else ())
        assert contents(path, table) == contents(zoo, table)
        # What describe_table shows is word for word what the source stores, a key to a hidden table included.
        assert SchemaGraph.from_file(path).ddl(table) == SchemaGraph.from_file(zoo).ddl(table)


def test_counters_and_statistics_name_only_chosen_tables(zoo: Path, opener: Opener) -> None:
    with opener(zoo, ["book", "author"]) as path:
        assert rows(path, "SELECT * FROM sqlite_sequence") == [(b"author", 900)]
        statistics = rows(path, "SELECT * FROM sqlite_stat1 ORDER BY 1, 2")
    assert statistics == rows(zoo, "SELECT * FROM sqlite_stat1 WHERE tbl IN ('author', 'book') ORDER BY 1, 2")
    with opener(zoo, ["heap"]) as path:
        assert rows(path, "SELECT name FROM sqlite_master WHERE name = 'sqlite_sequence'") == []


def test_virtual_tables_answer_and_indexes_are_used(zoo: Path, opener: Opener) -> None:
    with opener(zoo, ["notes", "book", "boxes"]) as path:
        assert rows(path, "SELECT title FROM notes WHERE notes MATCH 'fox'") == [(b"one",)]
        assert rows(path, "SELECT id FROM boxes WHERE x1 < 5") == [(1,)]
        plan = rows(path, "EXPLAIN QUERY PLAN SELECT isbn FROM book WHERE lower(isbn) = 'x'")
        assert b"book_lower" in plan[0][3]


@pytest.mark.parametrize(
    "script",
    [
        # SQLite reads such schemas but would not run their statements again.
        "CREATE TABLE t (a TEXT COLLATE phone, b CHECK (b <> sound('x')));",
        "CREATE TABLE t (a TEXT DEFAULT 'caf\udce9', b);",
    ],
    ids=["unknown collation and function", "text that is not UTF-8"],
)
def test_schemas_that_cannot_be_written_again_are_copied_by_pages(tmp_path: Path, opener: Opener, script: str) -> None:
    source = write_database(tmp_path / "s.sqlite", "CREATE TABLE t (a, b); CREATE TABLE hidden (c);")
    with closing(sqlite3.connect(source)) as connection:
        stored = script.rstrip(";").encode("utf-8", "surrogateescape")
        connection.execute("INSERT INTO t (rowid, a, b) VALUES (4, 'x', 1)")
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute("UPDATE sqlite_master SET sql = CAST(? AS TEXT) WHERE name = 't'", (stored,))
        connection.commit()
    with opener(source, ["t"]) as path:
        assert contents(path, "t") == [(4, b"x", 1)]
        assert rows(path, "SELECT name, sql FROM sqlite_master") == [(b"t", stored)]


@pytest.mark.parametrize(
    "script",
    [
        "CREATE TABLE t (a TEXT COLLATE phone UNIQUE, b);",
        "CREATE TABLE t (a TEXT, b); CREATE INDEX i ON t (a COLLATE phone);",
        "CREATE TABLE t (a TEXT, b); CREATE INDEX i ON t (sound(a));",
        "CREATE TABLE t (a TEXT, b AS (sound(a)));",
        "CREATE TABLE t (a TEXT, b); CREATE INDEX i ON t (a) WHERE sound(b);",
    ],
)
def test_rows_that_only_another_program_can_index(tmp_path: Path, script: str) -> None:
    """Its collations and functions are missing here, so SQLite cannot copy the rows: the file is overlaid, if small."""
    source = tmp_path / "s.sqlite"
    with closing(sqlite3.connect(source)) as connection:
        connection.create_collation("phone", lambda a, b: (a > b) - (a < b))
        connection.create_function("sound", 1, str, deterministic=True)
        connection.executescript(
            f"{script} CREATE TABLE hidden (c); INSERT INTO t (rowid, a) VALUES (4, 'x'), (9, 'y');"
        )
    with open_episode_database(source, ["t"]) as database:
        assert rows(database.path, "SELECT rowid, a FROM t NOT INDEXED") == [(4, b"x"), (9, b"y")]
        assert SchemaGraph.from_file(database.path).tables == ("t",)
    with pytest.raises(ValueError, match=r"s\.sqlite: (no such collation sequence: phone|unknown function: sound)"):
        build_database(source, ["t"], tmp_path / "out.sqlite")


@pytest.mark.parametrize(
    ("definition", "columns"),
    [
        ("(id INTEGER PRIMARY KEY, a, b AS (a))", "id, a"),
        ("(a, b AS (a) VIRTUAL)", "rowid, a"),
        ("(b AS (a || 'x') STORED, a, c)", "rowid, a"),
        ("(id TEXT PRIMARY KEY, a, b AS (a)) WITHOUT ROWID", "id, a"),
        ("(a, rowid, oid, _rowid_, b AS (a))", "rowid, a"),
        ("(id INTEGER PRIMARY KEY DESC, a CHECK (a <> 0))", "rowid, a"),
        ("(id INTEGER PRIMARY KEY DESC, a, b AS (a))", "rowid, a"),
        ("(a CHECK (a > 0) UNIQUE, b DEFAULT 5)", "rowid, a"),
    ],
)
@pytest.mark.parametrize("first", [1, 7])
def test_rows_that_sqlite_does_not_copy_whole(
    tmp_path: Path, opener: Opener, definition: str, columns: str, first: int
) -> None:
    """Generated columns and CHECKs make SQLite decode the rows; a covering index in another order tempts it then."""
    source = write_database(tmp_path / "s.sqlite", f"CREATE TABLE t {definition}; CREATE TABLE hidden (c);")
    with closing(sqlite3.connect(source)) as connection:
        listed = [row[1] for row in connection.execute("PRAGMA table_info(t)")]
        connection.execute(f"CREATE INDEX covering ON t ({', '.join(reversed(listed))})")
        values = [(first + number, 20 - number) for number in range(5)]
        connection.executemany(f"INSERT INTO t ({columns}) VALUES (?, ?)", values)
        connection.commit()
    with opener(source, ["t"]) as path:
        assert sorted(contents(path, "t")) == sorted(contents(source, "t"))
        in_order = "SELECT * FROM t NOT INDEXED"
        assert rows(path, in_order) == rows(source, in_order) and len(rows(path, in_order)) == 5


def test_rows_that_break_their_own_constraints_still_arrive(tmp_path: Path, opener: Opener) -> None:
    source = write_database(tmp_path / "s.sqlite", "CREATE TABLE p (a); CREATE TABLE t (a INT NOT NULL CHECK (a > 0));")
    with closing(sqlite3.connect(source)) as connection:
        connection.execute("PRAGMA ignore_check_constraints = ON")
        connection.execute("INSERT INTO t (rowid, a) VALUES (9, -1)")
        connection.commit()
    with opener(source, ["t"]) as path:
        assert contents(path, "t") == [(9, -1)]


def test_names_match_as_sqlite_matches_them(zoo: Path, opener: Opener) -> None:
    with opener(zoo, ["AUTHOR", "Book"]) as path:
        assert SchemaGraph.from_file(path).tables == ("author", "book")


@pytest.mark.parametrize(
    ("tables", "message"),
    [(["ghost"], "no table 'ghost'"), (["cheap"], "no table 'cheap'"), (["sqlite_sequence"], "no table"),
     (["book", "BOOK"], "chosen twice")],
)  # fmt: skip
def test_wrong_tables_are_named_and_leave_nothing(zoo: Path, tmp_path: Path, tables: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message) as error:
        build_database(zoo, tables, tmp_path / "out.sqlite")
    assert "zoo.sqlite" in str(error.value)
    assert not (tmp_path / "out.sqlite").exists()


def test_bad_sources_are_named(tmp_path: Path, zoo: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"nowhere\.sqlite"):
        open_episode_database(tmp_path / "nowhere.sqlite", ["t"])
    (tmp_path / "text.sqlite").write_text("not a database" * 100)
    with pytest.raises(ValueError, match=r"text\.sqlite is not a SQLite database"):
        open_episode_database(tmp_path / "text.sqlite", ["t"])
    with pytest.raises(FileExistsError, match="exists"):
        build_database(zoo, ["book"], zoo)
    (tmp_path / "zoo.sqlite-wal").write_bytes(b"pending")
    with pytest.raises(ValueError, match=r"unsaved changes in zoo\.sqlite-wal"):
        open_episode_database(zoo, ["book"])


def test_a_broken_file_is_an_error_not_a_broken_database(tmp_path: Path) -> None:
    source = write_database(tmp_path / "s.sqlite", "CREATE TABLE t (a); INSERT INTO t VALUES (hex(zeroblob(9000)));")
    content = bytearray(source.read_bytes())
    content[4096:8192] = b"\xee" * 4096
    source.write_bytes(content)
    with pytest.raises(ValueError, match=r"s\.sqlite.*malformed"):
        open_episode_database(source, ["t"])


def test_no_connection_stays_open(zoo: Path, opener: Opener) -> None:
    descriptors = Path("/proc/self/fd")
    with opener(zoo, ["book"]) as path:
        before = len(list(descriptors.iterdir()))
        with opener(zoo, ["heap", "tag"]), closing(connect(path)):
            pass
        assert len(list(descriptors.iterdir())) == before
