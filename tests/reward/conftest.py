"""A shop with four joined tables, and results made by hand."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from sqale_grpo.env.sandbox import Limits, QueryResult, Sandbox

SHOP = """
CREATE TABLE region(id INTEGER PRIMARY KEY, name TEXT);
CREATE TABLE customer(id INTEGER PRIMARY KEY, name TEXT, region INTEGER REFERENCES region, city TEXT);
CREATE TABLE orders(id INTEGER PRIMARY KEY, customer_id INTEGER REFERENCES customer(id), total REAL);
CREATE TABLE item(order_id INTEGER REFERENCES orders(id), line INTEGER, title TEXT, PRIMARY KEY(order_id, line));
CREATE TABLE "return"(order_id INTEGER, line INTEGER, FOREIGN KEY(order_id, line) REFERENCES item(order_id, line));
CREATE VIEW buyer AS SELECT name FROM customer WHERE id IN (SELECT customer_id FROM orders);
INSERT INTO region VALUES (1, 'north'), (2, 'south');
INSERT INTO customer VALUES (1, 'Ana', 1, 'Oslo'), (2, 'Bo', 2, 'Rome'), (3, 'Cy', 1, 'Oslo'), (4, 'Di', NULL, NULL);
INSERT INTO orders VALUES (10, 1, 20.5), (11, 1, 9.5), (12, 2, 20.5), (13, NULL, 5.0);
INSERT INTO item VALUES (10, 1, 'pen'), (10, 2, 'ink'), (11, 1, 'ink'), (12, 1, 'pad'), (13, 1, 'pen');
INSERT INTO "return" VALUES (10, 2), (12, 1);
"""


def build(path: Path, script: str) -> Path:
    """Write a database file."""
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(script)
    return path


def result(rows: list[tuple], width: int = 1) -> QueryResult:
    """A result of these rows; ``width`` counts only where there are none."""
    width = len(rows[0]) if rows else width
    return QueryResult(tuple(f"c{index}" for index in range(width)), list(rows), False, frozenset())


@pytest.fixture(scope="session")
def shop_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("shop") / "shop.sqlite", SHOP)


@pytest.fixture(scope="session")
def shop(shop_file: Path) -> Iterator[Sandbox]:
    with Sandbox(shop_file, Limits(seconds=2.0)) as sandbox:
        yield sandbox
