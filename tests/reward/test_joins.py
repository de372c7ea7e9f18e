"""The join share, case by case: what counts as a join, and what as along a declared key."""

import sqlite3
import time
from contextlib import closing

import pytest

from sqale_grpo.reward.joins import join_share
from tests.helpers.databases import schema_of
from tests.reward.conftest import SHOP

ON = "ON o.customer_id = c.id"


@pytest.fixture(scope="module")
def schema():
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(SHOP)
        yield schema_of(connection)


SHARES = [
    # what is a join
    ("SELECT name FROM customer", 0),
    ("SELECT * FROM customer WHERE id IN (SELECT customer_id FROM orders)", 0),
    ("SELECT * FROM customer c WHERE EXISTS (SELECT 1 FROM orders o WHERE o.customer_id = c.id)", 0),
    ("SELECT (SELECT sum(total) FROM orders o WHERE o.customer_id = c.id) FROM customer c", 0),
    ("SELECT * FROM customer, orders", 0),
    ("SELECT * FROM customer c CROSS JOIN orders o", 0),
    # where the equality stands
    (f"SELECT * FROM customer c JOIN orders o {ON}", 1),
    (f"SELECT * FROM orders o LEFT JOIN customer c {ON}", 1),
    (f"SELECT * FROM orders o FULL OUTER JOIN customer c {ON}", 1),
    ("SELECT * FROM customer c, orders o WHERE o.customer_id = c.id", 1),
    ("SELECT * FROM customer c JOIN orders o WHERE c.id == o.customer_id AND o.total > 1", 1),
    ("SELECT * FROM customer c JOIN orders o ON (((o.customer_id) = (c.id)))", 1),
    ("SELECT * FROM customer c JOIN orders o ON c.id = o.id WHERE o.customer_id = c.id", 1),
    (f"SELECT c.id FROM customer c JOIN orders o {ON} GROUP BY c.id HAVING count(*) > 1", 1),
    ("SELECT c.id FROM customer c JOIN orders o GROUP BY c.id HAVING o.customer_id = c.id", 0),
    # what is not an equality of two bare columns
    (f"SELECT * FROM customer c JOIN orders o {ON} OR o.total = 5", 0),
    ("SELECT * FROM customer c JOIN orders o ON NOT (o.customer_id <> c.id)", 0),
    ("SELECT * FROM customer c JOIN orders o ON o.customer_id IS c.id", 0),
    ("SELECT * FROM customer c JOIN orders o ON o.customer_id + 0 = c.id", 0),
    ("SELECT * FROM customer c JOIN orders o ON +o.customer_id = c.id", 0),
    ("SELECT * FROM customer c JOIN orders o ON o.customer_id = + - + c.id", 0),
    ("SELECT * FROM customer c JOIN orders o ON o.customer_id = c.id COLLATE NOCASE", 0),
    ("SELECT * FROM customer c JOIN orders o ON NOT NOT o.customer_id = c.id", 0),
    ("SELECT * FROM customer c JOIN orders o ON (o.customer_id, 1) = (c.id, 1)", 0),
    ("SELECT * FROM customer c JOIN orders o ON o.customer_id = CAST(c.id AS INT)", 0),
    ("SELECT * FROM customer c JOIN orders o ON o.customer_id = 1 AND c.id = 1", 0),
    ("SELECT * FROM customer c JOIN orders o ON o.customer_id IN (c.id)", 0),
    # names
    ('SELECT * FROM [Customer] JOIN `ORDERS` ON "Orders".CUSTOMER_ID = customer.Id', 1),
    ("SELECT * FROM customer c JOIN orders ON customer_id = c.id", 1),
    ("SELECT * FROM main.customer JOIN main.orders ON main.orders.customer_id = customer.id", 1),
    ("SELECT * FROM customer c JOIN customer d ON c.region = d.id", 0),
    ("SELECT * FROM orders c JOIN customer o ON o.id = c.customer_id", 1),
    ("SELECT * FROM orders customer JOIN customer orders ON customer.customer_id = orders.id", 1),
    ("SELECT * FROM customer c JOIN (orders) o ON o.customer_id = c.id", 1),
    # composite keys
    ('SELECT * FROM "return" r JOIN item i ON r.order_id = i.order_id AND r.line = i.line', 1),
    ('SELECT * FROM "return" r JOIN item i ON r.order_id = i.order_id', 0),
    ('SELECT * FROM "return" r JOIN item i ON r.order_id = i.order_id AND r.line = i.order_id', 0),
    ('SELECT * FROM "return" r JOIN item i ON r.order_id = i.order_id WHERE i.line = r.line', 1),
    ('SELECT * FROM "return" r JOIN item i USING (line, order_id)', 1),
    ('SELECT * FROM "return" r JOIN item i USING (order_id)', 0),
    ('SELECT * FROM "return" NATURAL JOIN item', 1),
    # several joins
    (f"SELECT * FROM customer c JOIN orders o {ON} JOIN item i ON i.order_id = o.id", 1),
    (f"SELECT * FROM customer c JOIN orders o {ON} JOIN item i ON i.line = o.id", 1 / 2),
    (f"SELECT * FROM customer c JOIN orders o JOIN item i {ON} AND i.order_id = o.id", 1),
    ("SELECT * FROM customer c, item i, orders o WHERE i.order_id = o.id AND o.customer_id = c.id", 1),
    ("SELECT * FROM region r, item i, customer c WHERE c.region = r.id", 1 / 2),
    ("SELECT * FROM customer c, orders o, orders p WHERE o.customer_id = c.id AND p.customer_id = c.id", 1),
    ("SELECT * FROM customer c, orders o, orders p WHERE o.customer_id = c.id AND o.id = p.id", 1 / 2),
    (f"SELECT * FROM item i JOIN (customer c JOIN orders o {ON}) ON i.order_id = o.id", 1),
    (f"SELECT * FROM (customer c JOIN orders o {ON}), region r", 1 / 2),
    (f"SELECT * FROM (customer c JOIN orders o {ON}) j JOIN region r ON j.region = r.id", 1 / 2),
    # several SELECTs
    (
        f"SELECT c.id FROM customer c JOIN orders o {ON} UNION SELECT r.id FROM region r JOIN item i ON i.line = r.id",
        1 / 2,
    ),
    (f"SELECT * FROM region WHERE id IN (SELECT c.region FROM customer c JOIN orders o {ON})", 1),
    (f"WITH b AS (SELECT c.id FROM customer c JOIN orders o {ON}) SELECT * FROM b JOIN region r ON b.id = r.id", 1 / 2),
    # what nobody reads
    (f"WITH z AS (SELECT 1 FROM customer c JOIN orders o {ON}) SELECT 1", 0),
    (f"WITH z AS (SELECT 1 FROM customer c JOIN orders o {ON}), y AS (SELECT * FROM z) SELECT 1 FROM region", 0),
    (f"WITH z AS (SELECT 1 FROM customer c JOIN orders o {ON} UNION SELECT * FROM z) SELECT 1", 0),
    (
        f"WITH z AS (SELECT 1 FROM customer c JOIN orders o {ON}) SELECT 1 FROM (WITH z AS (SELECT 2) SELECT 1 FROM z)",
        0,
    ),
    (f"WITH z AS (SELECT 1 FROM customer c JOIN orders o {ON}), y AS (SELECT * FROM z) SELECT (SELECT 1 FROM Y)", 1),
    (f"SELECT * FROM (WITH z AS (SELECT c.id FROM customer c JOIN orders o {ON}) SELECT * FROM z)", 1),
    (f"WITH z AS (SELECT 1 FROM item i, region r) SELECT * FROM customer c JOIN orders o {ON}", 1),
    # sources without keys
    ("WITH orders AS (SELECT 1 AS customer_id) SELECT * FROM orders o JOIN customer c ON o.customer_id = c.id", 0),
    ("WITH x AS (SELECT 1 AS id) SELECT * FROM orders o JOIN customer c ON o.customer_id = c.id", 1),
    ("WITH orders AS (SELECT 1) SELECT * FROM main.orders o JOIN customer c ON o.customer_id = c.id", 1),
    ("SELECT * FROM customer c JOIN (SELECT * FROM orders) o ON o.customer_id = c.id", 0),
    ("SELECT * FROM buyer b JOIN customer c ON b.name = c.name", 0),
    ("SELECT * FROM orders o, json_each('[1]') j WHERE j.value = o.customer_id", 0),
    ("SELECT * FROM (SELECT id AS customer FROM customer) JOIN orders ON customer_id = customer", 0),
    # no SQL that sqlglot reads
    ("SELEC", 0),
    ("", 0),
    ("SELECT '", 0),
]


@pytest.mark.parametrize(("sql", "share"), SHARES)
def test_share(schema, sql, share):
    assert join_share(sql, schema) == pytest.approx(share)


def test_merged_columns_of_several_joins(tmp_path):
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(
            "CREATE TABLE a(k INTEGER PRIMARY KEY); CREATE TABLE b(k INTEGER REFERENCES a, x); CREATE TABLE z(k, y);"
            "CREATE TABLE d(k INTEGER REFERENCES b(k));"
        )
        schema = schema_of(connection)
    assert join_share("SELECT * FROM a JOIN b USING(k) JOIN z USING(k)", schema) == 1 / 2
    # d.k equals b.k, since USING has made a.k and b.k one column.
    assert join_share("SELECT * FROM a JOIN b USING(k) JOIN d USING(k)", schema) == 1
    assert join_share("SELECT * FROM a NATURAL JOIN b NATURAL JOIN d", schema) == 1


def test_deep_and_long_texts_do_no_harm(schema):
    for sql in ("SELECT " + "(" * 5_000, "SELECT 1" + " UNION SELECT 1" * 400, "SELECT " + "NOT " * 5_000 + "1"):
        assert join_share(sql, schema) == 0
    join = "SELECT * FROM customer c JOIN orders o ON o.customer_id = c.id"
    assert join_share(f"{join} WHERE c.name <> '{'x' * 200_000}'", schema) == 0


@pytest.mark.full
@pytest.mark.parametrize(
    "sql",
    [
        # sqlglot tries these in two ways at every level.
        "SELECT " + "date(" * 22 + "1" + ")" * 22,
        "SELECT " + "char(" * 40 + "1" + ")" * 40,
        "SELECT 1 FROM customer c JOIN orders o ON " + "time(" * 80 + "1" + ")" * 80,
        "WITH t AS (SELECT 1) " + " UNION ALL ".join(["SELECT 1 FROM t" + ",t" * 59] * 450),
        "WITH " + ",".join(f"c{i} AS (SELECT * FROM c{i - 1}, c0)" for i in range(1, 2_000)) + " SELECT 1",
    ],
)
def test_no_text_keeps_the_parser_busy(schema, sql):
    started = time.process_time()
    assert join_share(sql, schema) == 0
    assert time.process_time() - started < 4


def test_a_few_nested_functions_are_read(schema):
    dates = "date(" * 8 + "o.total" + ")" * 8
    assert join_share(f"SELECT {dates} FROM customer c JOIN orders o {ON} WHERE {dates} > 1", schema) == 1
