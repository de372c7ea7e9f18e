"""Databases that the sampler's tests build from, and how they look at the result."""

import sqlite3
from contextlib import closing
from pathlib import Path

from sqale_grpo.env.catalog import read_catalog
from sqale_grpo.env.connect import read_only_uri
from sqale_grpo.env.query import decode
from sqale_grpo.env.schema import SchemaGraph

# Every form of table that SQLite stores in its own way, with rows that a careless copy would change.
ZOO = """
CREATE TABLE author (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL COLLATE NOCASE UNIQUE);
INSERT INTO author VALUES (1, 'Ada'), (7, 'Bob'), (900, 'gone');
DELETE FROM author WHERE id = 900;
CREATE TABLE book (
  isbn TEXT PRIMARY KEY, author INT REFERENCES author, price REAL, cents INT AS (price * 100) STORED,
  label TEXT GENERATED ALWAYS AS (isbn || '!') VIRTUAL, CHECK (price >= 0)
);
INSERT INTO book (rowid, isbn, author, price) VALUES (5, 'x', 1, 1.5), (2, 'y', 7, 2), (99, 'z', NULL, 3.25);
CREATE INDEX book_price ON book (price DESC) WHERE price > 1;
CREATE INDEX book_lower ON book (lower(isbn));
CREATE TABLE tag (word TEXT, book TEXT REFERENCES book (isbn), PRIMARY KEY (word, book)) WITHOUT ROWID;
INSERT INTO tag VALUES ('b', 'x'), ('a', 'y'), ('a', 'x');
CREATE TABLE heap (a, b);
INSERT INTO heap (rowid, a, b) VALUES (10, 1, '1'), (3, 1.0, x'00ff'), (77, NULL, 'a' || char(0) || 'b');
CREATE TABLE dense (a TEXT DEFAULT (lower('X')));
INSERT INTO dense VALUES ('1'), (CAST(x'63616fe9' AS TEXT)), (2);
CREATE TABLE taken (rowid TEXT, oid TEXT, _rowid_ TEXT);
INSERT INTO taken VALUES ('r', 'o', '_'), ('r2', 'o2', '_2');
CREATE TABLE "odd ""name; --" ("a b" INTEGER, [select] TEXT, `c``d` TEXT);
INSERT INTO "odd ""name; --" VALUES (1, 'it''s', 'x');
CREATE TABLE "Straße" (id INTEGER PRIMARY KEY, "größe" REAL) STRICT;
INSERT INTO "Straße" VALUES (-5, 1.5), (4611686018427387904, 2.0);
CREATE TABLE counter (id INTEGER PRIMARY KEY AUTOINCREMENT, note TEXT);
INSERT INTO counter VALUES (41, 'x');
CREATE TABLE descending (id INTEGER PRIMARY KEY DESC, v TEXT);
INSERT INTO descending (rowid, id, v) VALUES (50, 2, 'b'), (60, 1, 'a');
CREATE TABLE sums (id INTEGER PRIMARY KEY, b AS (a * 2), a INT, c INT AS (a + 1) STORED);
INSERT INTO sums (id, a) VALUES (1, 10), (2, 20);
CREATE INDEX sums_c ON sums (c);
CREATE TABLE empty (a INTEGER, b TEXT REFERENCES missing (x));
CREATE TABLE long (id INTEGER PRIMARY KEY, text TEXT);
INSERT INTO long VALUES (1, hex(zeroblob(40000))), (2, 'short');
CREATE VIEW cheap AS SELECT * FROM book WHERE price < 2;
CREATE TRIGGER no_more BEFORE INSERT ON heap BEGIN SELECT RAISE(FAIL, 'no'); END;
CREATE TRIGGER noted AFTER INSERT ON dense BEGIN INSERT INTO counter (note) VALUES ('trigger'); END;
CREATE VIRTUAL TABLE notes USING fts5 (title, body);
INSERT INTO notes VALUES ('one', 'the quick fox'), ('two', 'a lazy dog');
CREATE VIRTUAL TABLE boxes USING rtree (id, x0, x1);
INSERT INTO boxes VALUES (1, 0, 2), (2, 5, 9);
ANALYZE;
"""
ZOO_TABLES = [
    "author", "book", "tag", "heap", "dense", "taken", 'odd "name; --', "Straße", "counter", "descending", "sums",
    "empty", "long", "notes", "boxes",
]  # fmt: skip


def write_database(path: Path, script: str, *settings: str) -> Path:
    """A database made by ``script`` after the pragmas ``settings``."""
    with closing(sqlite3.connect(path)) as connection:
        for setting in (*settings, "synchronous = OFF"):
            connection.execute(f"PRAGMA {setting}")
        connection.executescript(script)
    return path


def connect(path: Path) -> sqlite3.Connection:
    """A read-only connection that gives text as bytes, so that nothing is lost in decoding."""
    connection = sqlite3.connect(read_only_uri(path), uri=True)
    connection.text_factory = bytes
    return connection


def rows(path: Path, sql: str, *parameters: object) -> list[tuple]:
    """All rows of one query."""
    with closing(connect(path)) as connection:
        return connection.execute(sql, parameters).fetchall()


def contents(path: Path, table: str) -> list[tuple]:
    """Rows of a table with their rowids where it has them."""
    quoted = '"' + table.replace('"', '""') + '"'
    with closing(connect(path)) as connection:
        try:
            return connection.execute(f"SELECT rowid, * FROM {quoted}").fetchall()
        except sqlite3.OperationalError:
            return connection.execute(f"SELECT * FROM {quoted}").fetchall()


def catalog(path: Path, table: str) -> list[tuple]:
    """The stored statements of a table and its indexes."""
    return rows(
        path,
        "SELECT type, name, sql FROM sqlite_master WHERE tbl_name = ? AND type IN ('table', 'index') ORDER BY 1, 2",
        table,
    )


def schema_of(connection: sqlite3.Connection) -> SchemaGraph:
    """The schema of a bare connection, as a worker reads it of a file."""
    connection.text_factory = decode
    shadow = {row[1] for row in connection.execute("PRAGMA main.table_list") if row[2] == "shadow"}
    connection.text_factory = str
    return SchemaGraph.from_catalog(read_catalog(connection, shadow, 1.0))
