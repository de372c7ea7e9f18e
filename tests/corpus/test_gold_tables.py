"""gold_tables: the base tables of a query, whatever else its FROM clauses name."""

import json
import time

import pytest

from sqale_grpo.corpus import UnparsedSql, gold_tables
from sqale_grpo.corpus.execution import connect, run
from sqale_grpo.corpus.gold import GoldDatabase
from sqale_grpo.corpus.gold_tables import fold, is_ordered

TABLES = ("singer", "Concert", "order details", "Straße")


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT count(*) FROM SINGER", ["singer"]),
        ("SELECT 1 FROM concert AS c, singer s WHERE c.id = s.id", ["singer", "Concert"]),
        ("SELECT * FROM [Order Details] JOIN `singer` USING (id)", ["singer", "order details"]),
        ('SELECT * FROM main."singer"', ["singer"]),
        ("SELECT * FROM 'singer'", ["singer"]),
        ("SELECT a FROM Straße", ["Straße"]),
        ("SELECT a FROM STRASSE", []),
        ("WITH concert AS (SELECT * FROM singer) SELECT * FROM concert", ["singer"]),
        ("SELECT * FROM (WITH concert AS (SELECT 1) SELECT * FROM concert), concert", ["Concert"]),
        ("WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 3) SELECT x FROM n", []),
        ("WITH a AS (SELECT * FROM singer), b AS (SELECT * FROM a) SELECT * FROM b", ["singer"]),
        ("SELECT 1 WHERE EXISTS (SELECT 1 FROM concert) UNION SELECT id FROM singer", ["singer", "Concert"]),
        ("SELECT concert FROM singer AS concert", ["singer"]),
        ("SELECT j.value FROM singer, json_each(singer.list) AS j", ["singer"]),
        (
            "SELECT (SELECT max(id) FROM concert) FROM singer WHERE x IN (SELECT x FROM [order details])",
            list(TABLES[:3]),
        ),
        ("SELECT count(*) FROM singer;", ["singer"]),
    ],
)
def test_base_tables_as_declared(sql: str, expected: list[str]) -> None:
    assert gold_tables(sql, TABLES) == tuple(expected)


@pytest.mark.parametrize("sql", ["", "-- nothing", "SELECT FROM WHERE", "SELECT 1; SELECT 2", "PRAGMA foo", "x" * 5])
def test_what_sqlglot_cannot_read(sql: str) -> None:
    with pytest.raises(UnparsedSql):
        gold_tables(sql, TABLES)


@pytest.mark.parametrize(
    ("sql", "ordered"),
    [
        ("SELECT a FROM t ORDER BY a", True),
        ("SELECT a FROM t UNION SELECT b FROM u ORDER BY 1 LIMIT 3", True),
        ("SELECT a FROM (SELECT a FROM t ORDER BY a)", False),
        ("SELECT row_number() OVER (ORDER BY a) FROM t", False),
        ("SELECT a FROM t ORDER BY a LIMIT (SELECT 1) % 2 OFFSET (SELECT 0) !! broken", False),
        ("SELECT f(a) !! FROM t ORDER  BY a", True),
    ],
)
def test_top_level_order(sql: str, ordered: bool) -> None:
    assert is_ordered(sql) is ordered


def test_sqlglot_and_sqlite_agree_on_real_queries(shared_data) -> None:
    """Every table that SQLite reads is found, and none besides, over a sample of the real questions."""
    lines = (shared_data / "questions.jsonl").read_text().splitlines()[::12]
    databases: dict[str, GoldDatabase] = {}
    unparsed = 0
    for question in map(json.loads, lines):
        db_id, sql = question["db_id"], question["sql"]
        if db_id not in databases:
            databases[db_id] = GoldDatabase(shared_data / "databases" / db_id / f"{db_id}.sqlite")
        tables = databases[db_id].tables
        _, touched = run(
            databases[db_id].connection, f"SELECT * FROM ({sql.rstrip().rstrip(';')}) LIMIT 0", time.monotonic() + 5
        )
        try:
            named = gold_tables(sql, tables)
        except UnparsedSql:
            unparsed += 1
            continue
        assert set(named) == {table for table in tables if fold(table) in touched.tables}, sql
    assert len(lines) > 900 and unparsed <= 1
    for database in databases.values():
        database.close()


def test_a_connection_cannot_write_or_leave_its_file(tmp_path) -> None:
    import sqlite3

    path = tmp_path / "a b#c%41.sqlite"
    sqlite3.connect(path).execute("CREATE TABLE t (a)").connection.close()
    connection = connect(path)
    for sql in ("INSERT INTO t VALUES (1)", "ATTACH 'x' AS x", "PRAGMA user_version = 3", "CREATE TEMP TABLE u (a)"):
        with pytest.raises(Exception, match="not authorized|prohibited"):
            run(connection, sql, time.monotonic() + 5)
    assert run(connection, "SELECT value FROM json_each('[7]')", time.monotonic() + 5)[0] == [(7,)]
