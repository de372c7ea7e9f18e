"""Fuzz the sandbox with mutated SQL: it answers or raises SqlError in time, changes nothing, and goes on.

300 examples, the same ones each time; 20,000 that differ from run to run in ``make fuzz``; ``FUZZ_EXAMPLES`` sets
another number.
"""

import os
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from sqale_grpo.env.sandbox import Limits, Sandbox, SqlError, WorkerPool
from tests.helpers.patience import patience

FUZZING = settings.get_current_profile_name() == "fuzz"
EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "20000" if FUZZING else "300"))
LIMITS = Limits(seconds=0.2, rows=1_000)
KINDS = {"syntax", "schema", "denied", "timeout", "memory", "rows", "other"}

SCHEMA = """
CREATE TABLE person(id INTEGER PRIMARY KEY, name TEXT, born REAL, photo BLOB);
CREATE TABLE pet(owner INTEGER REFERENCES person(id), kind TEXT, twice INT AS (owner * 2), PRIMARY KEY (owner, kind))
  WITHOUT ROWID;
CREATE VIEW owners AS SELECT name, kind FROM person JOIN pet ON owner = id;
CREATE VIRTUAL TABLE doc USING fts5(body);
CREATE VIRTUAL TABLE box USING rtree(id, low, high);
CREATE INDEX names ON person(name);
INSERT INTO person VALUES (1, 'Ann', 1.5, x'00ff'), (2, 'Bob', NULL, NULL), (3, CAST(x'fffe' AS TEXT), 9e999, x'');
INSERT INTO pet(owner, kind) VALUES (1, 'cat'), (1, 'dog'), (2, 'cat');
INSERT INTO doc VALUES ('hello world'), ('good bye');
INSERT INTO box VALUES (7, 1, 2);
"""
SEEDS = """
SELECT name, count(*) FROM person JOIN pet ON owner = id WHERE born > 1 GROUP BY name HAVING count(*) > 0 ORDER BY 2
SELECT * FROM person WHERE id IN (SELECT owner FROM pet WHERE kind = 'cat') AND photo IS NOT NULL LIMIT 5
SELECT rank() OVER (PARTITION BY kind ORDER BY owner ROWS BETWEEN 1 PRECEDING AND CURRENT ROW), twice FROM pet
WITH RECURSIVE c(x) AS (VALUES(1) UNION ALL SELECT x+1 FROM c WHERE x < 100000) SELECT sum(x), max(x) FROM c
SELECT x FROM (SELECT 1 AS x UNION SELECT 2 INTERSECT SELECT 2 EXCEPT SELECT 3) NATURAL LEFT JOIN owners
SELECT body, snippet(doc, 0, '[', ']', '', 5), bm25(doc) FROM doc WHERE doc MATCH 'hello OR b*' ORDER BY rank
SELECT id FROM box WHERE low <= 1.5 AND high >= 1.5
SELECT key, value, json_extract('{"a":[1,2]}', '$.a[1]') FROM json_each('[1,{"a":2}]'), json_tree('{"a":[]}')
SELECT CASE WHEN name LIKE 'A%' THEN substr(name, 2) ELSE printf('%.*c', 9000, 'x') END, CAST(born AS INT) FROM person
SELECT hex(randomblob(16)), zeroblob(1000), replace(hex(zeroblob(5000)), '00', 'abc'), quote(photo) FROM person
SELECT instr(hex(zeroblob(90000)), hex(zeroblob(40000)) || '1'), trim(name, 'n'), char(0, 55296, 1114111) FROM person
SELECT group_concat(name, ';') FILTER (WHERE id > 1), json_group_array(name), total(born) FROM person a, person b, pet c
SELECT strftime('%Y', 'now', '+1 day'), datetime(9e9, 'unixepoch'), round(1e300, 30), abs(-9223372036854775807)
EXPLAIN QUERY PLAN SELECT * FROM owners
PRAGMA table_info(person)
PRAGMA writable_schema = ON
SELECT name, sql FROM sqlite_master
SELECT sql FROM sqlite_stmt
SELECT * FROM pragma_database_list
SELECT load_extension('/tmp/x.so', 'entry')
INSERT INTO person(name) SELECT name FROM person ON CONFLICT DO UPDATE SET name = 'x' RETURNING id
WITH c AS (SELECT 1) UPDATE person SET name = 'x' WHERE id = 1
DELETE FROM pet WHERE owner = 1 RETURNING kind
CREATE TEMP TABLE person AS SELECT 1
CREATE TRIGGER t AFTER INSERT ON pet BEGIN DELETE FROM person; END
ATTACH DATABASE 'left_behind.db' AS e
VACUUM INTO 'left_behind.db'
ALTER TABLE pet RENAME TO animal
DROP TABLE IF EXISTS pet
BEGIN IMMEDIATE
""".strip().splitlines()
READING = 14  # so many seeds, from the first, only read
WORDS = [seed.split(" ") for seed in SEEDS]
TOKENS = sorted({word for words in WORDS for word in words})
ODD = [
    "(",
    ")",
    ",",
    ";",
    "'",
    '"',
    "[",
    "`",
    "--",
    "/*",
    "*/",
    "\x00",
    "\ud800",
    "ü",
    "?",
    ":a",
    "x'f'",
    "1e999",
    "NULL",
]
NAMES = [
    "id",
    "name",
    "born",
    "photo",
    "owner",
    "kind",
    "twice",
    "body",
    "person",
    "pet",
    "owners",
    "doc",
    "box",
    "x",
    "1",
]
FRAMES = [
    "{0}",
    "{0}",
    "SELECT * FROM ({0})",
    "SELECT count(*) FROM ({0}), ({1})",
    "WITH person AS ({0}) {1}",
    "WITH z AS MATERIALIZED ({0}) SELECT * FROM z, z AS y ORDER BY 1",
    "{0} UNION ALL {1}",
    "SELECT ({0}), EXISTS ({1})",
    "SELECT * FROM person WHERE id IN ({0}) OR name > ({1})",
    "EXPLAIN {0}",
    "{0};{1}",
    "CREATE VIEW v AS {0}",
    "INSERT INTO pet {0}",
]


@st.composite
def mutants(draw: st.DrawFn) -> str:
    """A seed, mostly with some names exchanged, sometimes with words put in, taken out or repeated."""
    words = list(draw(st.sampled_from(WORDS[:READING] * 3 + WORDS)))
    for _ in range(draw(st.sampled_from([0, 0, 1, 1, 2, 5]))):
        places = [i for i, word in enumerate(words) if word.strip(",") in NAMES]
        if places:
            words[draw(st.sampled_from(places))] = draw(st.sampled_from(NAMES))
    for _ in range(draw(st.sampled_from([0] * 8 + [1, 2, 4]))):
        place = draw(st.integers(0, len(words)))
        token = draw(st.sampled_from(TOKENS) | st.sampled_from(ODD) | st.text(max_size=4))
        words[place : place + draw(st.integers(0, 2))] = [token] * draw(st.sampled_from([0, 1, 1, 1, 2, 60]))
    return draw(st.sampled_from([" "] * 9 + ["\n", ""])).join(words)


@st.composite
def statements(draw: st.DrawFn) -> str:
    """One or two mutants in a frame."""
    return draw(st.sampled_from(FRAMES)).format(draw(mutants()), draw(mutants()))


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    """A sandbox and the bytes of its file before any statement ran."""
    database = tmp_path_factory.mktemp("fuzz") / "d.sqlite"
    with closing(sqlite3.connect(database)) as connection:
        connection.executescript(SCHEMA)
    with WorkerPool(workers=1) as pool, Sandbox(database, LIMITS, pool) as sandbox:
        sandbox.execute("SELECT 1")
        yield sandbox, database.read_bytes()


def check_service(sandbox: Sandbox, content: bytes) -> None:
    """The next query is answered at once, the file is what it was, and no other file is there."""
    start = time.monotonic()
    assert sandbox.execute("SELECT count(*) FROM person").rows == [(3,)]
    assert time.monotonic() - start < patience()
    assert sandbox.database.read_bytes() == content
    assert [path.name for path in sandbox.database.parent.iterdir()] == ["d.sqlite"]
    assert not Path("left_behind.db").exists() and not Path("/left_behind.db").exists()


@pytest.mark.full
@settings(
    max_examples=EXAMPLES,
    derandomize=not FUZZING,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(sql=statements())
def test_mutated_sql(service, sql):
    sandbox, content = service
    start = time.monotonic()
    try:
        result = sandbox.execute(sql)
    except SqlError as error:
        event(error.kind)
        assert error.kind in KINDS and error.message
        assert "worker process" not in error.message, "a worker crashed"
    else:
        event("ok")
        assert all(len(row) == len(result.columns) for row in result.rows) and len(result.rows) <= LIMITS.rows
        assert result.tables <= {"person", "pet", "doc", "box"}
    assert time.monotonic() - start < LIMITS.seconds + patience()
    check_service(sandbox, content)
