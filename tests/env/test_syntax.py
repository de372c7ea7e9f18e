"""Whether SQLite's parser accepts a text: judged without a schema, and without any effect."""

import sqlite3
import time
from contextlib import closing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sqale_grpo.env.pool import WorkerPool, default_pool
from sqale_grpo.env.syntax import parse_error, statements, tokens, unblanked
from tests.helpers.patience import patience

TRIGGER = "CREATE TRIGGER t AFTER INSERT ON x BEGIN SELECT 1; SELECT 2; END"


@pytest.mark.parametrize(
    ("sql", "error"),
    [
        ("SELECT * FROM nowhere", None),
        ("SELECT no_such_function()", None),
        (";; SELECT 1 ;; -- done", None),
        ("SELECT 1; SELECT 2", None),
        ("SELECT 1; SELEC 2", 'near "SELEC": syntax error'),
        ("SELECT * FROM nowhere; SELEC 2", 'near "SELEC": syntax error'),
        ("SELECT ';' AS \";\", [;], `;` /* ; */ -- ;", None),
        (TRIGGER, None),
        (f"{TRIGGER}; SELEC", 'near "SELEC": syntax error'),
        ("CREATE TABLE sqlite_master(a", None),  # refused by name before the end is reached
        ("CREATE TABLE x(a,,b)", 'near ",": syntax error'),
        ("DELETE FROM x WHERE (", "incomplete input"),
        ("EXPLAIN SELECT 1", None),
        ("EXPLAIN QUERY PLAN SELECT 1", None),
        ("EXPLAIN EXPLAIN SELECT 1", 'near "EXPLAIN": syntax error'),
        ("QUERY PLAN SELECT 1", 'near "QUERY": syntax error'),
        ("PRAGMA query_only = OFF", None),
        ("EXPLAIN PRAGMA query_only = OFF", None),
        ("ATTACH '/tmp/syntax_forbidden.db' AS a", None),
        ("SELECT 1 UNION SELECT 1, 2", None),
        ("SELECT 12abc", 'unrecognized token: "12abc"'),
        ("SELECT ?", None),
        ("", "empty statement"),
        (" ;\ufeff/* SELECT 1 */;", "empty statement"),
        ("SELECT '\ud800'", "the query holds a lone surrogate, which is not text"),
        ("SELECT 1\0", "the query contains a null character"),
    ],
)
def test_errors(sql, error):
    assert parse_error(sql) == error


def test_nothing_has_an_effect():
    for sql in (
        "CREATE TABLE kept(a)",
        "CREATE TEMP TABLE kept(a)",
        "BEGIN",
        "PRAGMA user_version = 7",
        "PRAGMA case_sensitive_like = 1",
        "EXPLAIN PRAGMA writable_schema = 1",
        "ATTACH ':memory:' AS other",
    ):
        assert parse_error(sql) is None
    with WorkerPool(workers=1) as pool:
        for sql in ("CREATE TABLE kept(a)", "CREATE TABLE kept(a)", "BEGIN", "BEGIN"):
            pool.run(pool.scratch, sql, 0, True)  # the second would fail after a first that ran


@pytest.mark.full
def test_statements_that_explode_or_have_many_parts_end_on_time():
    doubling = ", ".join(f"a{n} AS (SELECT * FROM a{n - 1} JOIN a{n - 1})" for n in range(1, 40))
    started = time.monotonic()
    assert parse_error(f"WITH a0 AS (SELECT 1), {doubling} SELECT * FROM a39") is None
    assert parse_error("SELECT " + ";" * 200_000) == 'near ";": syntax error'
    assert parse_error("SELECT '" + "';" * 100_000) is not None
    assert parse_error("SELECT " + "(" * 100_000) is None  # SQLite gives up before it finds that the end is missing
    assert parse_error("BEGIN;" * 100_000) is None
    assert parse_error(f"WITH a0 AS (SELECT 1), {doubling} SELECT * FROM a39;" * 10) is None
    assert time.monotonic() - started < 10 * patience()
    assert default_pool().pids and parse_error("SELECT 1") is None


@pytest.mark.parametrize("part", [";", "x END;", "; x END;", "SELECT 1;"])
def test_a_trigger_without_end_is_read_once(part):
    text = "CREATE TRIGGER t AFTER INSERT ON x BEGIN " + part * (120_000 // len(part))
    started = time.process_time()
    assert list(statements(text)) == [text]
    assert time.process_time() - started < 1


def complete_statements(sql):
    """Statements as SQLite's own shell parts them."""
    start = 0
    for end in range(1, len(sql) + 1):
        if sql[end - 1] == ";" and sqlite3.complete_statement(sql[start:end]):
            yield sql[start:end]
            start = end
    yield sql[start:]


PARTS = [
    "create",
    "temp",
    "temporary",
    "trigger",
    "end",
    "begin",
    "select",
    "explain",
    "query",
    "plan",
    ";",
    ";",
    ";",
    "';'",
    '"a;"',
    "/*;*/",
    "--;\n",
    "x",
]


@given(st.lists(st.sampled_from(PARTS), max_size=12), st.booleans())
def test_statements_are_parted_as_sqlites_shell_parts_them(parts, trigger):
    sql = ("create trigger " if trigger else "") + " ".join(parts)
    expected = [each for text in complete_statements(sql) for each in unblanked(text)]
    assert list(statements(sql)) == expected


def test_statements_are_those_that_sqlite_sees():
    sql = f"; SELECT 1;\n{TRIGGER}; -- rest ;\n SELECT ';' "
    assert [text.strip() for text in statements(sql)] == ["SELECT 1;", f"{TRIGGER};", "SELECT ';'"]
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("CREATE TABLE x(a)")
        for text in statements(sql):
            connection.execute(text)


def test_tokens():
    sql = """Select "A""b", 'C' FROM [D e] /* x ( */ WHERE(a.F=1) -- ;"""
    assert list(tokens(sql)) == ["select", '"A"', '"b"', "'C'", "from", "[D e]", "where", "(", "a", "f", "1", ")"]
