"""Changed copies: what they keep, what they hold, and that a seed alone decides."""

import sqlite3
from contextlib import closing

import pytest

from sqale_grpo.env.connect import read_only_uri
from sqale_grpo.env.schema import SchemaGraph
from sqale_grpo.reward.counter_build import ROWS, CopyBuilder, NoCopy
from sqale_grpo.reward.counter_plan import make_plan
from tests.reward.conftest import build

STRICT = """
CREATE TABLE team(id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, level INT CHECK (level BETWEEN 1 AND 3));
CREATE TABLE player(
    code TEXT PRIMARY KEY, team_id INTEGER NOT NULL REFERENCES team, age INTEGER, kind TEXT CHECK (kind IN ('a', 'b')),
    both TEXT GENERATED ALWAYS AS (kind || code)
);
CREATE TABLE plays(
    player TEXT REFERENCES player(code), team INTEGER REFERENCES team(id), n INT, PRIMARY KEY(player, team)
) WITHOUT ROWID;
CREATE UNIQUE INDEX one_age ON player(age);
INSERT INTO team VALUES (1, 'x', 1), (2, 'y', 2), (3, 'z', 3);
INSERT INTO player(code, team_id, age, kind)
    VALUES ('p1', 1, 20, 'a'), ('p2', 1, 21, 'b'), ('p3', 2, 22, 'a'), ('p4', 3, 23, 'b');
INSERT INTO plays VALUES ('p1', 1, 5), ('p1', 2, 6), ('p2', 1, 7), ('p4', 3, 8);
"""
TABLES = ("plays", "player", "team")


@pytest.fixture(scope="module")
def teams(tmp_path_factory):
    return build(tmp_path_factory.mktemp("teams") / "teams.sqlite", STRICT)


def builder(path, sql, tables=TABLES):
    return CopyBuilder(read_only_uri(path), make_plan(sql, tables, SchemaGraph.from_file(path)))


def rows(connection, table):
    return connection.execute(f"SELECT * FROM {table}").fetchall()


def content(path, sql, seed, tables=TABLES, others=(), backwards=False):
    with closing(builder(path, sql, tables).build(":memory:", seed, others, backwards)) as copy:
        return {table: rows(copy.connection, table) for table in (*tables, *others)}


SQL = "SELECT p.code FROM player p JOIN team t ON p.team_id = t.id WHERE p.kind = 'c' AND t.level >= 3"


@pytest.mark.parametrize("seed", range(12))
def test_keys_and_constraints_hold(teams, seed):
    with closing(builder(teams, SQL).build(":memory:", seed)) as copy:
        connection = copy.connection
        assert connection.execute("PRAGMA main.foreign_key_check").fetchall() == []
        assert connection.execute("PRAGMA main.integrity_check").fetchall() == [("ok",)]
        found = rows(connection, "player")
        assert {kind for _, _, _, kind, _ in found} <= {"a", "b"} and all(
            both == kind + code for code, _, _, kind, both in found
        )
        assert {"p1", "p2", "p3", "p4"} <= {row[0] for row in found}, "keys that others may refer to are kept"
        assert all(1 <= level <= 3 for _, _, level in rows(connection, "team"))


def test_copies_differ_from_the_database_and_from_each_other(teams):
    with closing(sqlite3.connect(teams)) as connection:
        own = {table: rows(connection, table) for table in TABLES}
    copies = [content(teams, SQL, seed) for seed in range(6)]
    assert all(copy != own for copy in copies) and copies[0] != copies[1]
    assert copies == [content(teams, SQL, seed) for seed in range(6)]
    assert any(len(copy["team"]) > 3 for copy in copies), "rows are doubled under new keys"


def test_the_values_that_the_gold_compares_with_are_there(shop_file):
    sql = "SELECT name FROM customer WHERE city = 'Bonn' AND region > 1"
    cities = [{row[3] for row in content(shop_file, sql, seed, ("customer",))["customer"]} for seed in range(8)]
    assert sum("Bonn" in found for found in cities) >= 6 and any("Bonnx" in found for found in cities)
    regions = {row[2] for seed in range(8) for row in content(shop_file, sql, seed, ("customer",))["customer"]}
    assert regions <= {1, 2, None}, "a foreign key gets no value that it does not have"


@pytest.mark.parametrize(
    ("sql", "values"),
    [
        ("SELECT 1 FROM orders WHERE total BETWEEN 5 AND 7.5", {("orders", "total"): (5, 6, 4, 7.5, 8.5, 6.5)}),
        ("SELECT 1 FROM orders o WHERE -3 < o.total", {("orders", "total"): (-3, -2, -4)}),
        ("SELECT 1 FROM customer WHERE name IN ('a')", {("customer", "name"): ("a", "ax")}),
        ("SELECT 1 FROM customer WHERE lower(name) LIKE '%ab%'", {("customer", "name"): ("ab", "abx", "xab", "a")}),
        ('SELECT 1 FROM customer WHERE name = "Ana"', {("customer", "name"): ("Ana", "Anax")}),
        ("SELECT 1 FROM customer WHERE name = city", {}),
        (
            "SELECT 1 FROM customer WHERE strftime('%Y', city) = '2020'",
            {("customer", "city"): ("2020-07-15", "2020-07-15x")},
        ),
    ],
)
def test_compared_values(shop, sql, values):
    plan = make_plan(sql, ("customer", "orders"), shop.schema)
    assert dict(plan.values) == values
    assert plan.joined == ({("customer", "name"), ("customer", "city")} if "name = city" in sql else frozenset())


def test_a_copy_of_an_episode_has_the_same_gold_tables_as_one_of_them_alone(teams):
    alone = content(teams, SQL, 3, ("player",))
    with_others = content(teams, SQL, 3, ("player",), ("team", "plays"))
    assert with_others["player"] == alone["player"]
    with closing(sqlite3.connect(teams)) as connection:
        assert with_others["team"] == rows(connection, "team") and with_others["plays"] == rows(connection, "plays")


def test_rows_may_be_stored_last_to_first(teams):
    there, back = (content(teams, SQL, 5, backwards=backwards)["player"] for backwards in (False, True))
    assert sorted(there) == sorted(back)


def test_large_and_virtual_tables_are_left_out(tmp_path):
    path = build(
        tmp_path / "large.sqlite",
        "CREATE TABLE a(x); INSERT INTO a VALUES (1), (2); CREATE TABLE b(x);"
        f"WITH n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i <= {ROWS}) INSERT INTO b SELECT i FROM n;"
        "CREATE VIRTUAL TABLE words USING fts5(w);",
    )
    with closing(builder(path, "SELECT x FROM a", ("a",)).build(":memory:", 1, ("b", "words"))) as copy:
        assert copy.left_out == {"b", "words"}
    assert len(content(path, "SELECT x FROM b", 1, ("b",))["b"]) > ROWS, (
        "of a large gold table the first rows, and new ones"
    )
    with pytest.raises(NoCopy, match="no base table"):
        builder(path, "SELECT w FROM words", ("words",))


def test_text_that_is_not_utf8_gives_no_copy(tmp_path):
    path = build(tmp_path / "bytes.sqlite", "CREATE TABLE a(x); INSERT INTO a VALUES (CAST(x'ff' AS TEXT)), ('é');")
    with pytest.raises(NoCopy, match="Could not decode to UTF-8"):
        builder(path, "SELECT x FROM a", ("a",))
