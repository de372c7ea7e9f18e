"""Postgres and MariaDB as sources: real servers, the same rows in SQLite, nothing written."""

from collections.abc import Callable
from pathlib import Path

import pytest

from sqale_grpo.corpus.own.address import read_address
from sqale_grpo.corpus.own.mysql import MysqlDatabase
from sqale_grpo.corpus.own.postgres import PostgresDatabase
from sqale_grpo.corpus.own.sources import SECONDS
from sqale_grpo.corpus.own.tables import QueryFailed
from tests.corpus.own.conftest import lines, rows

pytestmark = [pytest.mark.servers, pytest.mark.full]

POSTGRES = """
CREATE SCHEMA sales;
CREATE TYPE mood AS ENUM ('good', 'bad');
CREATE TABLE city (id serial PRIMARY KEY, name text NOT NULL UNIQUE, people bigint, mood mood, founded date);
CREATE TABLE shop (id uuid PRIMARY KEY, city_id int REFERENCES city, opened timestamptz, rating numeric(4, 2),
    big numeric(30, 2), tags text[], extra jsonb, photo bytea, active boolean, at time, share double precision);
CREATE TABLE sales.city (id int PRIMARY KEY, sold numeric(10, 2));
CREATE TABLE sales.visit (shop uuid REFERENCES shop, day date, people int, PRIMARY KEY (shop, day));
CREATE TABLE no_key (a int, b text);
INSERT INTO city (name, people, mood, founded) VALUES ('Rome', 2800000, 'good', '0753-04-21'),
    ('Köln', 1100000, NULL, NULL),
    ('Oslo', 700000, 'bad', '1048-01-01');
INSERT INTO shop VALUES
    ('11111111-1111-1111-1111-111111111111', 1, '2024-03-01 23:30:00+02', 4.50, 1234567890123456789012345678.5, '{a,b}',
     '{"k": 1}', '\\x00ff', true, '08:30', 'NaN'),
    ('22222222-2222-2222-2222-222222222222', 2, NULL, 3.25, 7, NULL, NULL, NULL, false, NULL, 0.5);
INSERT INTO sales.city VALUES (1, 10.10), (2, 20.00);
INSERT INTO sales.visit SELECT '11111111-1111-1111-1111-111111111111', d::date, 5
    FROM generate_series('2024-01-01'::date, '2024-03-10', '1 day') d;
INSERT INTO no_key VALUES (1, 'x'), (1, 'x');
CREATE VIEW big_city AS SELECT name, people / 1000 AS thousands FROM city WHERE people > 1000000;
CREATE VIEW monthly AS SELECT date_trunc('month', day)::date AS month, sum(people) AS people
    FROM sales.visit GROUP BY 1;
CREATE VIEW odd AS SELECT name, pg_typeof(people)::text AS kind FROM city;
"""
MARIADB = """
CREATE TABLE city (id INT AUTO_INCREMENT PRIMARY KEY, name VARCHAR(40) NOT NULL, people BIGINT UNSIGNED, founded DATE);
CREATE TABLE `shop list` (id INT PRIMARY KEY, city_id INT, opened DATETIME, rating DECIMAL(4,2), active TINYINT(1),
    kind ENUM('small', 'large'), at TIME, photo BLOB, y YEAR, FOREIGN KEY (city_id) REFERENCES city (id));
CREATE TABLE visit (id INT PRIMARY KEY, shop_id INT, day DATE, people INT);
INSERT INTO city (name, people, founded) VALUES ('Rome', 2800000, '1000-04-21'), ('Köln', 1100000, NULL);
INSERT INTO `shop list` VALUES (1, 1, '2024-03-01 23:30:00', 4.50, 1, 'small', '08:30:00', x'00ff', 1999),
    (2, 2, NULL, 3.25, 0, 'large', '-01:30:00', NULL, NULL);
INSERT INTO visit SELECT seq, 1, DATE_ADD('2024-01-01', INTERVAL seq DAY), 5 FROM seq_1_to_70;
CREATE VIEW big_city AS SELECT name, people / 1000 AS thousands FROM city WHERE people > 1500000;
CREATE VIEW yearly AS SELECT YEAR(day) AS y, SUM(people) AS people FROM visit GROUP BY YEAR(day);
"""


@pytest.fixture(scope="session")
def shop_in_postgres(postgres: str) -> str:
    psycopg = pytest.importorskip("psycopg")
    address = read_address(postgres)
    with psycopg.connect(host=address.socket, user=address.user, dbname=address.database) as connection:
        for statement in POSTGRES.split(";\n"):
            if statement.strip():
                connection.execute(statement)
    return postgres


@pytest.fixture(scope="session")
def shop_in_mariadb(mariadb: str) -> str:
    pymysql = pytest.importorskip("pymysql")
    address = read_address(mariadb)
    connection = pymysql.connect(unix_socket=address.socket, user=address.user, database=address.database)
    with connection, connection.cursor() as cursor:
        for statement in MARIADB.split(";\n"):
            if statement.strip():
                cursor.execute(statement)
        connection.commit()
    return mariadb


def same_rows(source: PostgresDatabase | MysqlDatabase, path: Path) -> int:
    """Compares every table with SQLite's; the rows of all."""
    total = 0
    for table in source.tables():
        theirs = source.query(f"SELECT * FROM {source.quoted(table)}", 10_000)
        ours = rows(path, f'SELECT * FROM "{table.name}"')
        assert sorted(map(repr, ours)) == sorted(map(repr, theirs)), table.name
        total += len(ours)
    return total


def test_postgres_round_trip(shop_in_postgres: str, tmp_path: Path, corpus: Callable[..., int], capsys) -> None:
    assert corpus("new", tmp_path / "own", shop_in_postgres, "--propose", 5) == 0
    told = capsys.readouterr().out
    path = tmp_path / "own" / "shop.sqlite"
    source = PostgresDatabase(read_address(shop_in_postgres), SECONDS)
    assert same_rows(source, path) == 3 + 2 + 2 + 70 + 2
    source.close()
    assert rows(path, "SELECT * FROM shop ORDER BY id")[0] == (
        "11111111-1111-1111-1111-111111111111",
        1,
        "2024-03-01 21:30:00",
        4.5,
        1.2345678901234568e27,
        '["a", "b"]',
        '{"k": 1}',
        b"\x00\xff",
        1,
        "08:30:00",
        None,
    )
    assert rows(path, "SELECT founded FROM city ORDER BY id") == [("0753-04-21",), (None,), ("1048-01-01",)]
    keys = rows(path, 'SELECT "table", "from" FROM pragma_foreign_key_list(\'visit\')')
    assert keys == [("shop", "shop")]
    assert "sales.city is called sales_city here" in told
    assert "without a key, so that no row of it can be named: no_key" in told
    assert rows(path, "SELECT * FROM big_city ORDER BY 1") == [("Köln", 1100), ("Rome", 2800)]
    assert rows(path, "SELECT * FROM monthly ORDER BY 1")[0] == ("2024-01-01", 155)
    assert "the view odd is left out" in told
    assert not list((tmp_path / "own").glob(".*"))


def test_a_limit_of_rows_keeps_the_keys(shop_in_postgres: str, tmp_path: Path, corpus: Callable[..., int]) -> None:
    assert corpus("new", tmp_path / "own", shop_in_postgres, "--rows", 1, "--propose", 1) == 0
    path = tmp_path / "own" / "shop.sqlite"
    assert rows(path, "PRAGMA foreign_key_check") == []
    assert rows(path, "SELECT count(*) FROM visit") == [(1,)]
    assert rows(path, "SELECT count(*) FROM city") == [(1,)]


def test_mariadb_round_trip(shop_in_mariadb: str, tmp_path: Path, corpus: Callable[..., int], capsys) -> None:
    assert corpus("new", tmp_path / "own", f"store={shop_in_mariadb}", "--propose", 5) == 0
    told = capsys.readouterr().out
    path = tmp_path / "own" / "store.sqlite"
    source = MysqlDatabase(read_address(shop_in_mariadb), SECONDS)
    assert same_rows(source, path) == 2 + 2 + 70
    source.close()
    assert rows(path, 'SELECT * FROM "shop list" ORDER BY id') == [
        (1, 1, "2024-03-01 23:30:00", 4.5, 1, "small", "08:30:00", b"\x00\xff", 1999),
        (2, 2, None, 3.25, 0, "large", "-01:30:00", None, None),
    ]
    assert "visit.shop_id -> shop list.id" not in told  # of another name
    assert rows(path, "SELECT * FROM big_city") == [("Rome", 2800.0)]
    assert rows(path, "SELECT * FROM yearly") == [(2024, 350)]


QUESTIONS = (
    ("How many visits in March?", "SELECT count(*) FROM sales.visit WHERE extract(month FROM day) = 3"),
    ("Which cities begin with r, in any case?", "SELECT name FROM public.city WHERE name ILIKE 'r%'"),
    ("Visits a month?", "SELECT date_trunc('month', day)::date, count(*) FROM sales.visit GROUP BY 1"),
    ("Half of the cities?", "SELECT count(*) / 2 FROM city"),
    ("Which cities begin with r?", "SELECT name FROM city WHERE name LIKE 'r%'"),  # SQLite's LIKE takes Rome
    ("What type?", "SELECT pg_typeof(people)::text FROM city"),
    ("Broken", "SELEC name FROM city"),
)


def test_golds_of_postgres_are_taken_where_the_rows_are_the_same(
    shop_in_postgres: str, tmp_path: Path, corpus: Callable[..., int]
) -> None:
    file = tmp_path / "asked.csv"
    file.write_text("question,sql\n" + "".join(f'{q.replace(",", " ")},"{sql}"\n' for q, sql in QUESTIONS))
    assert corpus("new", tmp_path / "own", shop_in_postgres, "--questions", file, "--test", "0") == 0
    taken = {record["question"]: record["sql"] for record in lines(tmp_path / "own" / "questions.jsonl")}
    assert set(taken) == {q.replace(",", " ") for q, _ in QUESTIONS[:4]}
    path = tmp_path / "own" / "shop.sqlite"
    assert rows(path, taken["How many visits in March?"]) == [(10,)]
    left = {record["question"]: record["reason"] for record in lines(tmp_path / "own" / "left_out.jsonl")}
    assert left["Which cities begin with r?"] == "postgres returns 0 rows and SQLite 1"
    assert "SQLite" in left["What type?"]
    assert left["Broken"].startswith("it is no postgres")
    assert corpus("check", tmp_path / "own") == 0


def test_a_source_is_never_written(shop_in_postgres: str, shop_in_mariadb: str) -> None:
    for source in (
        PostgresDatabase(read_address(shop_in_postgres), SECONDS),
        MysqlDatabase(read_address(shop_in_mariadb), SECONDS),
    ):
        before = source.query("SELECT count(*) FROM city", 1)
        for statement in ("DELETE FROM city", "INSERT INTO city (name) VALUES ('Atlantis')", "DROP TABLE city"):
            with pytest.raises(QueryFailed):
                source.query(statement, 1)
        assert source.query("SELECT count(*) FROM city", 1) == before
        source.close()


def test_values_that_python_has_no_use_for(shop_in_postgres: str) -> None:
    source = PostgresDatabase(read_address(shop_in_postgres), SECONDS)
    assert source.query("SELECT 1.10::numeric, interval '90 minutes', point(1, 2)::text", 1) == [
        (1.1, "01:30:00", "(1,2)")
    ]
    source.close()


@pytest.mark.parametrize("address", ["postgresql://me:secret@127.0.0.1:1/shop", "mysql://me:secret@127.0.0.1:1/shop"])
def test_a_server_that_is_not_there(address: str, tmp_path: Path, corpus: Callable[..., int], capsys) -> None:
    pytest.importorskip("psycopg")
    pytest.importorskip("pymysql")
    assert corpus("new", tmp_path / "own", address) == 2
    told = capsys.readouterr().err.splitlines()[-1]
    assert "127.0.0.1:1/shop cannot be opened" in told and "start the server, or mend the address" in told
    assert "secret" not in told
    assert not (tmp_path / "own").exists() and not list(tmp_path.iterdir())
