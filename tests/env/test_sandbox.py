"""The sandbox' answers: exact values, typed errors, limits, and whatever kind of file."""

import os
import sqlite3
from contextlib import closing
from dataclasses import fields
from pathlib import Path
from typing import Literal

import pytest

from sqale_grpo.env.limits import LARGEST, Query, SqlError
from sqale_grpo.env.sandbox import Limits, Sandbox, WorkerPool
from sqale_grpo.env.schema import SchemaGraph
from tests.helpers.people import SCHEMA, build, failure


@pytest.fixture(scope="module")
def pool():
    with WorkerPool(workers=1) as pool:
        yield pool


@pytest.fixture
def database(tmp_path) -> Path:
    return build(tmp_path / "d.sqlite", SCHEMA)


@pytest.fixture
def sandbox(database, pool):
    with Sandbox(database, Limits(seconds=2.0), pool) as sandbox:
        yield sandbox


def test_values_arrive_exactly(sandbox):
    sql = "SELECT 1, -9223372036854775808, 0.1, 9e999, -9e999, 'ä\u0000b', x'00ff', NULL, 1 = 1, 'a' AS a, 'b' AS a"
    with closing(sqlite3.connect(":memory:")) as connection:
        expected = connection.execute(sql.replace("\u0000", "'||char(0)||'")).fetchall()
    result = sandbox.execute(sql.replace("\u0000", "'||char(0)||'"))
    assert repr(result.rows) == repr(expected)
    assert result.columns[-2:] == ("a", "a")
    assert not result.truncated


@pytest.mark.parametrize("end", ["", ";", ";;", "; -- two\n;"])
def test_text_that_is_not_utf8_is_kept_bytewise(sandbox, end):
    rows = sandbox.execute(f"SELECT CAST(x'66fcfe' AS TEXT), 'für', x'ff'{end}").rows
    assert rows == [("f\udcfc\udcfe", "für", b"\xff")]
    assert rows[0][0].encode("utf-8", "surrogateescape") == b"f\xfc\xfe"
    assert sandbox.execute("SELECT CAST(x'ff' AS TEXT)").rows == [("\udcff",)]


@pytest.mark.parametrize(
    "sql, rows, truncated",
    [
        ("SELECT 1 WHERE 0", 0, False),
        ("WITH c(x) AS (VALUES(1) UNION ALL SELECT x+1 FROM c) SELECT x FROM c LIMIT 4", 4, False),
        ("WITH c(x) AS (VALUES(1) UNION ALL SELECT x+1 FROM c) SELECT x FROM c LIMIT 5", 5, False),
        ("WITH c(x) AS (VALUES(1) UNION ALL SELECT x+1 FROM c) SELECT x FROM c LIMIT 6", 5, True),
        ("WITH c(x) AS (VALUES(1) UNION ALL SELECT x+1 FROM c) SELECT x FROM c", 5, True),
    ],
)
def test_preview_says_whether_there_is_more(sandbox, sql, rows, truncated):
    result = sandbox.execute(sql, max_rows=5)
    assert (len(result.rows), result.truncated) == (rows, truncated)


def test_rows_over_the_limit_are_an_error_and_at_the_limit_none(database, pool):
    count = "WITH c(x) AS (VALUES(1) UNION ALL SELECT x+1 FROM c) SELECT x FROM c LIMIT {}"
    with Sandbox(database, Limits(rows=700), pool) as sandbox:
        assert [row[0] for row in sandbox.execute(count.format(700)).rows] == list(range(1, 701))
        error = failure(sandbox, count.format(701))
        assert (error.kind, error.message) == ("rows", "the result has more than 700 rows")
        assert len(sandbox.execute(count.format(701), max_rows=9_999).rows) == 700
        assert sandbox.execute(count.format(1), max_rows=0).truncated


@pytest.mark.parametrize(
    "sql, kind, message",
    [
        ("SELEC 1", "syntax", 'near "SELEC": syntax error'),
        ("SELECT (1", "syntax", "incomplete input"),
        ("SELECT 'a", "syntax", 'unrecognized token: "\'a"'),
        ("", "syntax", "empty statement"),
        (" ;; -- nothing\n/* at all */;", "syntax", "empty statement"),
        ("SELECT 1\u0000", "syntax", "the query contains a null character"),
        ("SELECT '\ud800'", "syntax", "the query holds a lone surrogate, which is not text"),
        ("SELECT * FROM nobody", "schema", "no such table: nobody"),
        ("SELECT age FROM Person", "schema", "no such column: age"),
        ("SELECT id FROM Person a, Person b", "schema", "ambiguous column name: id"),
        ("SELECT median(id) FROM Person", "schema", "no such function: median"),
        ("SELECT length(1, 2)", "schema", "wrong number of arguments to function length()"),
        ("SELECT 1; SELECT 2", "other", "You can only execute one statement at a time."),
        ("SELECT sum(x) FROM (SELECT 9223372036854775807 x UNION ALL SELECT 1)", "other", "integer overflow"),
        ("SELECT zeroblob(2000000)", "memory", "string or blob too big"),
        ("SELECT 'x' LIKE printf('%.*c', 6000, '%')", "memory", "LIKE or GLOB pattern too complex"),
        ("DELETE FROM pet", "denied", "not authorized"),
        ("PRAGMA user_version = 3", "denied", "not authorized"),
        ("DROP TABLE IF EXISTS nobody", "denied", "only statements that return rows are allowed"),
    ],
)
def test_errors_have_a_kind_and_sqlites_own_words(sandbox, sql, kind, message):
    error = failure(sandbox, sql)
    assert (error.kind, error.message) == (kind, message)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 1;",
        "SELECT 1;;",
        "SELECT 1; ; -- the end;",
        "/* ; */ SELECT 1 /* ; */;\n;",
        "\ufeffSELECT 1",
        "-- first\nSELECT 1",
    ],
)
def test_empty_statements_and_comments_do_not_count(sandbox, sql):
    assert sandbox.execute(sql).rows == [(1,)]


@pytest.mark.parametrize("sql", ["SELECT ';'; SELECT 2", "SELECT 1;; x", "SELECT 1; -- a\n DELETE FROM pet"])
def test_a_second_statement_is_refused(sandbox, sql):
    assert failure(sandbox, sql).kind == "other"


@pytest.mark.parametrize(
    "sql, tables",
    [
        ("SELECT name FROM person", {"Person"}),
        ("SELECT count(*) FROM main.PERSON", {"Person"}),
        ("SELECT * FROM owners", {"Person", "pet"}),
        ("WITH p AS (SELECT kind FROM pet) SELECT count(*) FROM p", {"pet"}),
        ("SELECT (SELECT max(id) FROM Person WHERE id IN (SELECT owner FROM pet))", {"Person", "pet"}),
        ("SELECT name FROM Person NATURAL JOIN sqlite_master", {"Person"}),
        ("EXPLAIN QUERY PLAN SELECT * FROM pet", {"pet"}),
        ("SELECT name FROM sqlite_master", set()),
        ("SELECT 1", set()),
    ],
)
def test_tables_that_a_statement_reads(sandbox, sql, tables):
    assert sandbox.execute(sql).tables == tables


def test_a_plain_query_is_run_as_a_script_would_and_leaves_the_others_as_they_are(sandbox):
    def plain(sql: str, keep: Literal["head", "different"] = "head", cap: int = 3):
        (found,) = sandbox.ask([Query(sql, cap, False, plain=keep)])
        return found.kind if isinstance(found, SqlError) else sorted(found.rows)

    numbers = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000) "
    assert plain("") == plain("-- nothing") == plain(";;") == []
    assert plain("SELECT 1;;") == plain("SELECT 1; SELECT 2") == "other"
    assert plain(numbers + "SELECT i FROM n") == [(1,), (2,), (3,)]
    assert plain(numbers + "SELECT i % 2 FROM n", "different") == [(0,), (1,)]
    # A row that is not kept is read too.
    assert plain(numbers + "SELECT CASE i WHEN 20000 THEN CAST(x'ff' AS TEXT) END FROM n") == "other"
    assert plain("PRAGMA user_version") == [(0,)]
    assert plain("PRAGMA user_version = 3") == plain("DELETE FROM pet") == "denied"
    assert failure(sandbox, "PRAGMA user_version").kind == "denied"
    assert failure(sandbox, "").kind == "syntax"
    assert sandbox.execute("SELECT CAST(x'ff' AS TEXT)").rows == [("\udcff",)]


def test_other_kinds_of_table_are_readable(tmp_path, pool):
    script = """
    PRAGMA encoding = 'UTF-16le';
    CREATE VIRTUAL TABLE doc USING fts5(body); INSERT INTO doc VALUES ('hello world'), ('good bye');
    CREATE VIRTUAL TABLE old USING fts4(body); INSERT INTO old VALUES ('hello world');
    CREATE VIRTUAL TABLE box USING rtree(id, low, high); INSERT INTO box VALUES (7, 1, 2);
    CREATE TABLE pair(k TEXT PRIMARY KEY, v INT, twice INT AS (v * 2)) WITHOUT ROWID; INSERT INTO pair VALUES ('ü', 4);
    """
    with Sandbox(build(tmp_path / "k.sqlite", script), Limits(), pool) as sandbox:
        assert sandbox.execute("SELECT body FROM doc WHERE doc MATCH 'hello'").rows == [("hello world",)]
        assert sandbox.execute("SELECT body FROM doc WHERE doc MATCH 'bye'").tables == {"doc"}
        assert sandbox.execute("SELECT count(*) FROM old WHERE body MATCH 'hello'").rows == [(1,)]
        assert sandbox.execute("SELECT id FROM box WHERE low <= 1.5 AND high >= 1.5").rows == [(7,)]
        assert sandbox.execute("SELECT k, twice FROM pair").rows == [("ü", 8)]
        assert failure(sandbox, "INSERT INTO doc(doc) VALUES ('optimize')").kind == "denied"


@pytest.mark.parametrize("name", ["a b%20c.sqlite", "q?mode=rwc&x#y.sqlite", "it's ü.db", "c:\\d.db", "%2e%2e", "'; x"])
def test_any_file_name(tmp_path, pool, name, monkeypatch):
    build(tmp_path / name, SCHEMA)
    monkeypatch.chdir(tmp_path)
    for path in (tmp_path / name, name, Path("/" + str(tmp_path)) / name):
        with Sandbox(path, Limits(), pool) as sandbox:
            assert sandbox.execute("SELECT count(*) FROM Person").rows == [(3,)]
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_file_that_is_no_database(tmp_path, pool):
    path = tmp_path / "text.sqlite"
    path.write_text("a, b, c\n" * 1000)
    with Sandbox(path, Limits(), pool) as sandbox:
        for _ in range(2):
            error = failure(sandbox, "SELECT 1")
            assert (error.kind, error.message) == ("other", "file is not a database")
        assert [error.message for error in sandbox.execute_many([("SELECT 1", 1)] * 3)] == [error.message] * 3
    with pytest.raises(FileNotFoundError, match="no database file at .*nowhere.sqlite"):
        Sandbox(tmp_path / "nowhere.sqlite", Limits(), pool)


def test_an_orphaned_log_is_refused(database, pool):
    Path(f"{database}-wal").write_bytes(b"x" * 32)
    with pytest.raises(ValueError, match="d.sqlite-wal holds changes that a program left behind"):
        Sandbox(database, Limits(), pool)


def crash_in_a_change(database: Path) -> None:
    """Leave a change half written, as a killed program does: new pages in the file, the old ones in a journal."""
    child = os.fork()
    if child == 0:
        connection = sqlite3.connect(database, isolation_level=None)
        connection.execute("PRAGMA cache_size = 1")
        connection.execute("BEGIN")
        connection.execute("UPDATE pages SET a = 'new'")
        os._exit(0)
    os.waitpid(child, 0)


def test_an_unfinished_change_is_refused(tmp_path, pool):
    rows = "WITH n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000) SELECT 'old', zeroblob(500) FROM n"
    path = build(tmp_path / "j.sqlite", f"CREATE TABLE pages(a, b); INSERT INTO pages {rows}")
    crash_in_a_change(path)
    for opening in (lambda: Sandbox(path, Limits(), pool), lambda: SchemaGraph.from_file(path)):
        with pytest.raises(ValueError, match="j.sqlite-journal holds a change that a program did not complete"):
            opening()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("SELECT count(*) FROM pages").fetchall()
        connection.execute("PRAGMA journal_mode = PERSIST")
        connection.execute("UPDATE pages SET b = NULL")
        connection.commit()
    assert Path(f"{path}-journal").exists()  # and is not in force
    with Sandbox(path, Limits(), pool) as sandbox:
        assert sandbox.execute("SELECT a, count(*) FROM pages GROUP BY a").rows == [("old", 2000)]


def test_limits_of_one_sandbox(database, pool):
    limits = Limits(seconds=3.0, length=1_000, sql_length=400, depth=10, result_mb=1, instructions=100)
    with Sandbox(database, limits, pool) as sandbox:
        assert failure(sandbox, "SELECT zeroblob(1001)").message == "string or blob too big"
        assert failure(sandbox, f"SELECT {'1' * 500}").message == "query string is too large"
        assert failure(sandbox, "SELECT 1" + "+1" * 20).message.startswith("Expression tree is too large")
        many = "WITH c(x) AS (VALUES(1) UNION ALL SELECT x+1 FROM c) SELECT zeroblob(1000) FROM c"
        assert failure(sandbox, many).message == "the result is larger than 1 MB"
        union = " UNION ".join(["SELECT * FROM pet"] * 15)
        assert failure(sandbox, union).message == "out of memory"
    with Sandbox(database, Limits(), pool) as sandbox:
        assert sandbox.execute("SELECT length(zeroblob(1001))").rows == [(1001,)]


def test_many_queries_are_answered_in_order(sandbox):
    queries = [
        ("SELECT 1", None),
        ("SELEC 2", 3),
        ("SELECT id FROM Person", 2),
        ("", None),
        ("SELECT name FROM pet", 1),
    ]
    found = sandbox.execute_many(queries)
    assert [getattr(result, "rows", None) for result in found] == [[(1,)], None, [(1,), (2,)], None, None]
    assert [getattr(result, "kind", None) for result in found] == [None, "syntax", None, "syntax", "schema"]
    assert found[2].truncated and found[2].tables == {"Person"}
    assert sandbox.execute_many([]) == []
    large = sandbox.execute_many([("SELECT printf('%.*c', 300000, 'x')", 1), ("SELECT 2", 1)] * 5)
    assert [len(str(result.rows[0][0])) for result in large] == [300_000, 1] * 5


@pytest.mark.parametrize(
    "limit",
    [
        {"rows": 0}, {"rows": 2.5}, {"rows": None}, {"length": 10**12}, {"memory_mb": 0.5}, {"instructions": 1e300},
        {"seconds": 0}, {"seconds": -1.0}, {"seconds": float("inf")}, {"seconds": float("nan")}, {"seconds": "5"},
    ],
)  # fmt: skip
def test_a_limit_that_no_worker_can_keep_is_told_at_once(limit):
    with pytest.raises(ValueError, match=f"env limit {next(iter(limit))} is .*: it must be a .*number above 0"):
        Limits(**limit)


def test_the_widest_limits_work(database, pool):
    widest = Limits(**{field.name: LARGEST for field in fields(Limits)})
    with Sandbox(database, widest, pool) as sandbox:
        assert sandbox.execute("SELECT count(*) FROM Person").rows == [(3,)]


def test_wrong_use_is_told_at_once(database, pool):
    sandbox = Sandbox(database, Limits(), pool)
    for max_rows in (-1, 1.5, "3", float("inf")):
        with pytest.raises(ValueError, match="max_rows is .*: it must be a whole number from 0"):
            sandbox.execute("SELECT 1", max_rows=max_rows)
    with pytest.raises(TypeError, match="a query is a str, not NoneType"):
        sandbox.execute(None)
    sandbox.close()
    sandbox.close()
    with pytest.raises(RuntimeError, match="is closed"):
        sandbox.execute("SELECT 1")


def test_schema_comes_with_the_sandbox(sandbox):
    assert sandbox.schema.tables == ("Person", "pet")
    assert sandbox.schema is sandbox.schema
