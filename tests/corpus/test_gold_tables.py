"""gold_tables: the base tables of a query, whatever else its FROM clauses name."""

import json

import pytest

from sqale_grpo.corpus import UnparsedSql, gold_tables
from sqale_grpo.corpus.gold import GoldConnection, GoldDatabase, Touched
from sqale_grpo.env.limits import SqlError
from sqale_grpo.env.text import fold_name
from tests.helpers.corpora import database

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
        ("SELECT count(*) FROM singer; -- all of them", ["singer"]),
    ],
)
def test_base_tables_as_declared(sql: str, expected: list[str]) -> None:
    assert gold_tables(sql, TABLES) == tuple(expected)


@pytest.mark.parametrize("sql", ["", "-- nothing", "SELECT FROM WHERE", "SELECT 1; SELECT 2", "PRAGMA foo", "x" * 5])
def test_what_sqlglot_cannot_read(sql: str) -> None:
    with pytest.raises(UnparsedSql):
        gold_tables(sql, TABLES)


@pytest.mark.full
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
        connection = databases[db_id].connection
        connection.rows(f"SELECT * FROM ({sql.rstrip().rstrip(';')}) LIMIT 0", 5, 1)
        read = set(map(fold_name, connection.reads))
        try:
            named = gold_tables(sql, tables)
        except UnparsedSql:
            unparsed += 1
            continue
        assert set(named) == {table for table in tables if fold_name(table) in read}, sql
    assert len(lines) > 900 and unparsed <= 1
    for opened in databases.values():
        opened.close()


def test_what_a_query_touched(tmp_path) -> None:
    """As the authorizer saw it, folded; a statement leaves nothing behind for the next one."""
    shop = GoldDatabase(database(tmp_path / "shop.sqlite"))
    touched = shop.judge("SELECT UPPER(name), count(*) FROM city WHERE date('now') > '2000' GROUP BY 1", 5).touched
    assert touched == Touched(frozenset({"city"}), frozenset({"upper", "count", "date"}))
    assert shop.judge("SELECT id FROM City", 5).touched == Touched(frozenset({"city"}), frozenset())
    shop.close()


def test_a_connection_cannot_write_or_leave_its_file(tmp_path) -> None:
    import sqlite3

    path = tmp_path / "a b#c%41.sqlite"
    sqlite3.connect(path).execute("CREATE TABLE t (a)").connection.close()
    connection = GoldConnection(path)
    for sql in ("INSERT INTO t VALUES (1)", "ATTACH 'x' AS x", "PRAGMA user_version = 3", "CREATE TEMP TABLE u (a)"):
        with pytest.raises(SqlError, match="denied"):
            connection.rows(sql, 5, 1)
    assert connection.rows("SELECT value FROM json_each('[7]')", 5, 1) == [(7,)]
    connection.close()
