"""A table that was not chosen does not exist by any route, and no route writes the source."""

import hashlib
import random
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from sqale_grpo.env.sandbox import Sandbox, SqlError
from sqale_grpo.env.schema import SchemaGraph
from sqale_grpo.sampler import choose_tables, open_episode_database
from tests.helpers.databases import ZOO, ZOO_TABLES, connect, rows, write_database
from tests.sampler.conftest import Opener

SHOWN = ["tag", "author"]
HIDDEN = [name for name in [*ZOO_TABLES, "cheap", "notes_data", "boxes_node"] if name not in SHOWN]


@pytest.mark.parametrize("table", HIDDEN)
def test_a_query_finds_no_such_table(zoo: Path, opener: Opener, table: str) -> None:
    quoted = '"' + table.replace('"', '""') + '"'
    with opener(zoo, SHOWN) as path, Sandbox(path) as sandbox:
        for name in (quoted, f"main.{quoted}"):
            with pytest.raises(SqlError, match="no such table") as error:
                sandbox.execute(f"SELECT * FROM {name}")
            assert error.value.kind == "schema"


def test_the_catalog_and_every_pragma_show_the_chosen_alone(zoo: Path, opener: Opener) -> None:
    with opener(zoo, SHOWN) as path, closing(connect(path)) as connection:
        listed = {row[1] for row in connection.execute("PRAGMA table_list")}
        assert listed <= {
            b"tag",
            b"author",
            b"sqlite_schema",
            b"sqlite_temp_schema",
            b"sqlite_sequence",
            b"sqlite_stat1",
        }
        owners = {
            row[0] for row in connection.execute("SELECT tbl_name FROM sqlite_master WHERE name NOT LIKE 'sqlite%'")
        }
        assert owners == {b"tag", b"author"}
        for table in HIDDEN:
            for pragma in ("table_info", "table_xinfo", "index_list", "foreign_key_list"):
                assert connection.execute(f"SELECT * FROM pragma_{pragma}(?)", (table,)).fetchall() == []
        for index in ("book_price", "book_lower", "sqlite_autoindex_book_1"):
            assert connection.execute("SELECT * FROM pragma_index_info(?)", (index,)).fetchall() == []


def test_no_table_that_can_be_read_tells_a_hidden_name(zoo: Path, opener: Opener) -> None:
    # The stored statement of a chosen table is the one exception: it keeps its REFERENCES word for word.
    names = [name.encode() for name in HIDDEN if name not in ("book", "empty", "long", "dense", "taken", "heap")]
    with opener(zoo, SHOWN) as path:
        for table in ("sqlite_master", "sqlite_sequence", "sqlite_stat1", "tag", "author"):
            cells = b"\0".join(bytes(str(row), "utf-8") for row in rows(path, f"SELECT * FROM {table}"))
            assert not [name for name in names if name in cells], table


POSTS = """
CREATE TABLE posts(id INTEGER PRIMARY KEY, body TEXT); INSERT INTO posts VALUES(1, 'quick fox'), (2, 'slow snail');
CREATE TABLE t(a); INSERT INTO t VALUES(1);
"""
INDEXES = {
    "fts5": "CREATE VIRTUAL TABLE words USING fts5(body, content='posts', content_rowid='id');"
    "INSERT INTO words(words) VALUES('rebuild')",
    "fts5 bare": "CREATE VIRTUAL TABLE words USING FTS5 (body, tokenize = porter, content = posts, content_rowid=id);"
    "INSERT INTO words(words) VALUES('rebuild')",
    "fts4": """CREATE VIRTUAL TABLE words USING fts4(content="posts", body);"""
    "INSERT INTO words(words) VALUES('rebuild')",
}


@pytest.mark.parametrize("kind", INDEXES)
def test_a_full_text_index_shows_no_word_of_a_table_that_is_not_there(
    tmp_path: Path, opener: Opener, kind: str
) -> None:
    source = write_database(tmp_path / "posts.sqlite", POSTS + INDEXES[kind])
    graph = SchemaGraph.from_file(source)
    assert (graph.content("words"), graph.content("t")) == ("posts", None)
    with opener(source, ["words", "t"]) as path, Sandbox(path, immutable=True) as sandbox:
        for query in ("SELECT body FROM words", "SELECT rowid FROM words WHERE words MATCH 'fox'"):
            with pytest.raises(SqlError):
                sandbox.execute(query)
        assert sandbox.execute("SELECT a FROM t").rows == [(1,)]
        assert sandbox.schema.tables == ("words", "t")
    with opener(source, ["words", "posts"]) as path, Sandbox(path, immutable=True) as sandbox:
        assert sandbox.execute("SELECT body FROM words WHERE words MATCH 'fox'").rows == [("quick fox",)]


def test_a_full_text_table_brings_the_rows_that_it_indexes(tmp_path: Path) -> None:
    graph = SchemaGraph.from_file(write_database(tmp_path / "posts.sqlite", POSTS + INDEXES["fts5"]))
    assert sorted(choose_tables(graph, ["words"], 0, random.Random(1))) == ["posts", "words"]
    for seed in range(20):
        chosen = choose_tables(graph, ["t"], 2, random.Random(seed))
        assert "words" not in chosen or "posts" in chosen


def test_a_key_to_a_hidden_table_joins_nothing(zoo: Path, opener: Opener) -> None:
    with opener(zoo, ["tag", "author"]) as path:
        graph = SchemaGraph.from_file(path)
        assert graph.foreign_keys == ()
        assert graph.join_path("tag", "author") is None


@pytest.mark.parametrize("statement", ["INSERT INTO tag VALUES ('n', 'n')", "DROP TABLE tag", "DELETE FROM author"])
def test_nobody_writes_through_an_overlay(zoo: Path, statement: str) -> None:
    before = hashlib.sha256(zoo.read_bytes()).hexdigest()
    with open_episode_database(zoo, SHOWN, small_bytes=0) as database:
        with closing(sqlite3.connect(database.path, isolation_level=None)) as connection:
            with pytest.raises(sqlite3.OperationalError, match="readonly"):
                connection.execute(statement)
            with pytest.raises(sqlite3.OperationalError, match="readonly"):
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        # A plain connection is safe too: its closing does not fold the log into the source.
        assert SchemaGraph.from_file(database.path).tables == tuple(SHOWN)
    assert hashlib.sha256(zoo.read_bytes()).hexdigest() == before
    assert set(SchemaGraph.from_file(zoo).tables) == set(ZOO_TABLES)


def test_a_source_whose_log_this_process_holds_open_hides_no_less(tmp_path: Path) -> None:
    # SQLite keeps one index of logs for an inode in a process; workers are other processes.
    source = write_database(tmp_path / "live.sqlite", ZOO, "journal_mode = WAL")
    with closing(sqlite3.connect(source)) as live:
        live.execute("SELECT count(*) FROM book").fetchall()
        with open_episode_database(source, SHOWN, small_bytes=0) as database:
            assert SchemaGraph.from_file(database.path).tables == tuple(SHOWN)


def test_overlays_of_one_file_live_side_by_side(zoo: Path) -> None:
    # SQLite shares state between connections to one inode; the logs must not be mixed up.
    with (
        open_episode_database(zoo, ["heap"], 0) as first,
        open_episode_database(zoo, ["dense", "tag"], 0) as second,
        closing(connect(first.path)) as one,
        closing(connect(second.path)) as two,
    ):
        for _ in range(3):
            assert one.execute("SELECT count(*) FROM heap").fetchone() == (3,)
            assert two.execute("SELECT count(*) FROM dense").fetchone() == (3,)
        for connection, table in ((one, "dense"), (two, "heap")):
            with pytest.raises(sqlite3.OperationalError, match="no such table"):
                connection.execute(f"SELECT * FROM {table}")
