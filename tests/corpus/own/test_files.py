"""CSV, Parquet, DuckDB and SQLite as sources: the same rows, with keys, dates and a limit that cuts none of them."""

import datetime
import decimal
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.corpus.own.conftest import lines, rows
from tests.helpers.company import company_csv, company_database
from tests.helpers.corpora import database

CUSTOMERS = (
    "customer_id;name;zip;born;joined;rate;vip\n"
    "1;Ada;00123;24.12.1990;2024-01-02 10:30;12,50;true\n2;Käthe;99999;;2024-02-03;7,25;false\n"
)
ORDERS = (
    'order_id,customer_id,placed,note\n10,1,2024-03-01,"two\nlines, and ""quotes"""\n'
    "11,2,2024-03-02,\n12,1,2024-03-09,\\N\n"
)


def csv_folder(folder: Path) -> Path:
    folder.mkdir()
    (folder / "customers.csv").write_bytes(CUSTOMERS.encode("utf-8-sig"))
    (folder / "orders.csv").write_text(ORDERS, encoding="utf-8")
    return folder


def test_csv_files_have_types_dates_and_keys(tmp_path: Path, corpus: Callable[..., int], capsys) -> None:
    assert corpus("new", tmp_path / "own", f"shop={csv_folder(tmp_path / 'csv')}", "--found-keys", "yes") == 0
    told = capsys.readouterr().out
    path = tmp_path / "own" / "shop.sqlite"
    assert rows(path, "SELECT * FROM customers") == [
        (1, "Ada", "00123", "1990-12-24", "2024-01-02 10:30:00", 12.5, 1),
        (2, "Käthe", "99999", None, "2024-02-03 00:00:00", 7.25, 0),
    ]
    assert rows(path, "SELECT note FROM orders") == [('two\nlines, and "quotes"',), (None,), (None,)]
    assert rows(path, 'SELECT "table", "from", "to" FROM pragma_foreign_key_list(\'orders\')') == [
        ("customers", "customer_id", "customer_id")
    ]
    assert rows(path, "PRAGMA foreign_key_check") == []
    assert "1. orders.customer_id -> customers.customer_id" in told
    assert "next: sqale-grpo corpus add" in told


def test_keys_that_were_found_can_be_refused(tmp_path: Path, corpus: Callable[..., int]) -> None:
    assert corpus("new", tmp_path / "own", f"shop={csv_folder(tmp_path / 'csv')}", "--found-keys", "no") == 0
    assert rows(tmp_path / "own" / "shop.sqlite", "SELECT * FROM pragma_foreign_key_list('orders')") == []


def test_dates_that_nobody_can_tell_stay_text(tmp_path: Path, corpus: Callable[..., int], capsys) -> None:
    (tmp_path / "visits.csv").write_text("id,day,other\n1,03/04/2021,13/04/2021\n2,05/06/2021,05/06/2021\n")
    assert corpus("new", tmp_path / "own", tmp_path / "visits.csv") == 0
    assert rows(tmp_path / "own" / "visits.sqlite", "SELECT day, other FROM visits") == [
        ("03/04/2021", "2021-04-13"),
        ("05/06/2021", "2021-06-05"),
    ]
    assert "the dates of 'day' could be day first or month first" in capsys.readouterr().out


def test_parquet_files(tmp_path: Path, corpus: Callable[..., int]) -> None:
    day = datetime.date(2024, 2, 29)
    moment = datetime.datetime(2024, 2, 29, 12, 0, 1, tzinfo=datetime.UTC)
    records = [
        {"id": 1, "day": day, "at": moment, "cost": decimal.Decimal("1.50"), "tags": ["a"], "raw": b"\0", "on": True},
        {"id": 2, "day": None, "at": None, "cost": None, "tags": None, "raw": None, "on": False},
    ]
    (tmp_path / "lake").mkdir()
    pq.write_table(pa.Table.from_pylist(records), tmp_path / "lake" / "things.parquet")
    assert corpus("new", tmp_path / "own", tmp_path / "lake") == 0
    assert rows(tmp_path / "own" / "lake.sqlite", "SELECT * FROM things") == [
        (1, "2024-02-29", "2024-02-29 12:00:01", 1.5, '["a"]', b"\0", 1),
        (2, None, None, None, None, None, 0),
    ]


def test_a_duckdb_file(tmp_path: Path, corpus: Callable[..., int], capsys) -> None:
    duckdb = pytest.importorskip("duckdb", reason="pip install 'sqale-grpo[own]'")
    with duckdb.connect(str(tmp_path / "shop.duckdb")) as connection:
        connection.execute(
            "CREATE TABLE city (id INT PRIMARY KEY, name VARCHAR UNIQUE, founded DATE, size DECIMAL(8, 2))"
        )
        connection.execute("CREATE TABLE shop (id BIGINT, city_id INT REFERENCES city (id), opened TIMESTAMP, l INT[])")
        connection.execute("INSERT INTO city VALUES (1, 'Rome', '1000-04-21', 12.5), (2, 'Köln', NULL, 3)")
        connection.execute(
            "INSERT INTO shop SELECT i, 1 + i % 2, '2024-01-01'::TIMESTAMP + i * INTERVAL 1 HOUR, [1, 2] "
            "FROM range(100) t(i)"
        )
        connection.execute(
            "CREATE VIEW busy AS SELECT c.name, count(*) AS n FROM shop s JOIN city c ON c.id = s.city_id GROUP BY 1"
        )
        connection.execute("CREATE VIEW listed AS SELECT list(id) AS l FROM city")
        theirs = connection.execute("SELECT count(*), min(opened)::VARCHAR, max(opened)::VARCHAR FROM shop").fetchall()
    asked = tmp_path / "asked.jsonl"
    asked.write_text(
        '{"question": "How many?", "sql": "SELECT count(*) FROM shop WHERE opened >= DATE \'2024-01-03\'"}\n'
        '{"question": "Which year?", "sql": "SELECT DISTINCT year(opened) FROM main.shop"}\n'
    )
    assert corpus("new", tmp_path / "own", tmp_path / "shop.duckdb", "--questions", asked, "--test", 0) == 0
    path = tmp_path / "own" / "shop.sqlite"
    assert rows(path, "SELECT count(*), min(opened), max(opened) FROM shop") == theirs
    assert rows(path, "SELECT * FROM city") == [(1, "Rome", "1000-04-21", 12.5), (2, "Köln", None, 3.0)]
    assert rows(path, "SELECT l FROM shop LIMIT 1") == [("[1, 2]",)]
    assert sorted(rows(path, "SELECT * FROM busy")) == [("Köln", 50), ("Rome", 50)]
    assert "the view listed is left out" in capsys.readouterr().out
    taken = [record["sql"] for record in lines(tmp_path / "own" / "questions.jsonl")]
    assert [rows(path, sql) for sql in taken] == [[(52,)], [(2024,)]]


def test_a_sqlite_file_is_copied_whole(tmp_path: Path, corpus: Callable[..., int]) -> None:
    source = company_database(tmp_path / "company.sqlite")
    before = source.read_bytes()
    questions = company_csv(tmp_path / "questions.csv")
    assert corpus("new", tmp_path / "own", source, "--questions", questions) == 0
    assert source.read_bytes() == before
    ours = tmp_path / "own" / "company.sqlite"
    dumped = "SELECT type, name, sql FROM sqlite_master ORDER BY 1, 2"
    assert rows(ours, dumped) == rows(source, dumped)
    train, test = (lines(tmp_path / "own" / name) for name in ("questions.jsonl", "questions_test.jsonl"))
    assert len(train) + len(test) == 60 and 4 <= len(test) <= 20


def test_a_key_that_was_found_is_declared_in_the_copy(tmp_path: Path, corpus: Callable[..., int]) -> None:
    source = database(
        tmp_path / "shop.sqlite",
        "CREATE TABLE city (id INTEGER PRIMARY KEY, name TEXT);"
        "CREATE TABLE shop (id INTEGER PRIMARY KEY, city_id INT);"
        "CREATE TABLE log (id INTEGER PRIMARY KEY, city_id INT) STRICT;"
        "INSERT INTO city VALUES (1, 'Rome'), (2, 'Oslo'); INSERT INTO shop VALUES (1, 1), (2, NULL);"
        "INSERT INTO log VALUES (1, 77);",
    )
    assert corpus("new", tmp_path / "own", source, "--found-keys", "yes") == 0
    ours = tmp_path / "own" / "shop.sqlite"
    assert rows(ours, "SELECT \"table\" FROM pragma_foreign_key_list('shop')") == [("city",)]
    assert rows(ours, "SELECT \"table\" FROM pragma_foreign_key_list('log')") == []
    assert rows(ours, "PRAGMA integrity_check") == [("ok",)]
    assert rows(ours, "SELECT * FROM shop") == [(1, 1), (2, None)]


def test_a_limit_of_rows_keeps_the_keys_of_a_copy_whole(tmp_path: Path, corpus: Callable[..., int], capsys) -> None:
    source = company_database(tmp_path / "company.sqlite")
    assert corpus("new", tmp_path / "own", source, "--rows", 20, "--propose", 5) == 0
    ours = tmp_path / "own" / "company.sqlite"
    assert rows(ours, "PRAGMA foreign_key_check") == []
    assert rows(ours, 'SELECT count(*) FROM "log.events"') == [(20,)]
    assert rows(ours, "SELECT count(*) FROM employees")[0][0] >= 20
    assert "cut to 20 rows" in capsys.readouterr().out


def test_a_limit_of_rows_keeps_the_keys_of_files_whole(tmp_path: Path, corpus: Callable[..., int]) -> None:
    folder = tmp_path / "csv"
    folder.mkdir()
    (folder / "city.csv").write_text("id,name\n" + "".join(f"{n},city {n}\n" for n in range(1, 101)))
    (folder / "shop.csv").write_text("id,city_id\n" + "".join(f"{n},{101 - n}\n" for n in range(1, 101)))
    assert corpus("new", tmp_path / "own", folder, "--rows", 10, "--found-keys", "yes") == 0
    ours = tmp_path / "own" / "csv.sqlite"
    assert rows(ours, "SELECT count(*) FROM shop") == [(10,)]
    assert rows(ours, "SELECT count(*), max(id) FROM city") == [(20, 100)]
    assert rows(ours, "PRAGMA foreign_key_check") == []
