"""A small shop database with every kind of name and relation that SQLite allows."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from sqale_grpo.env.sandbox import Sandbox

SHOP = """
CREATE TABLE customers(id INTEGER PRIMARY KEY, name TEXT, note TEXT, photo BLOB);
CREATE TABLE "order items"(
  "order no" INTEGER, line INTEGER, "group" TEXT, price REAL, total AS (price * 2),
  customer INTEGER REFERENCES customers(id), PRIMARY KEY("order no", line)
) WITHOUT ROWID;
CREATE TABLE "Straße"(id INTEGER PRIMARY KEY, Größe TEXT);
CREATE TABLE returns(o INTEGER, l INTEGER, FOREIGN KEY(o, l) REFERENCES "order items"("order no", line));
CREATE TABLE "select"(id INTEGER PRIMARY KEY, parent INTEGER REFERENCES "select"(id));
CREATE TABLE "a, b"(x INTEGER);
CREATE VIRTUAL TABLE texts USING fts5(body);
CREATE VIEW spenders AS SELECT name, price FROM customers JOIN "order items" ON customer = customers.id;
CREATE TABLE empty(x INTEGER, y TEXT);
"""
CUSTOMERS = [(i, f"name {i}", None, None) for i in range(1, 31)]


@pytest.fixture(scope="session")
def shop_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shop's file: 30 customers, 7 order lines, 25 streets of 3 sizes."""
    file = tmp_path_factory.mktemp("shop") / "shop.sqlite"
    with closing(sqlite3.connect(file)) as connection:
        connection.executescript(SHOP)
        connection.executemany("INSERT INTO customers VALUES (?, ?, ?, ?)", CUSTOMERS)
        connection.execute("UPDATE customers SET note = ?, photo = ? WHERE id = 1", ("n" * 200, b"\x00\xff" * 100))
        connection.execute("UPDATE customers SET note = ?, photo = ? WHERE id = 2", ("two\r\nlines", b"\x0a\x0b"))
        connection.execute("UPDATE customers SET note = CAST(x'66fc72' AS TEXT) WHERE id = 3")
        lines = [(n // 2, n % 2, "g", n / 2, n + 1) for n in range(7)]
        insert = 'INSERT INTO "order items"("order no", line, "group", price, customer) VALUES (?, ?, ?, ?, ?)'
        connection.executemany(insert, lines)
        connection.executemany('INSERT INTO "Straße" VALUES (?, ?)', [(i, "SML"[i % 3]) for i in range(25)])
        connection.commit()
    return file


@pytest.fixture(scope="session")
def shop(shop_file: Path) -> Iterator[Sandbox]:
    with Sandbox(shop_file) as sandbox:
        yield sandbox
