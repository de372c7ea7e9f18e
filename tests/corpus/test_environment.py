"""A gold that is kept runs in the environment, too: the same limits, the same tables, virtual ones included."""

import json
import sqlite3
from pathlib import Path

import pytest

from sqale_grpo.corpus import prepare
from sqale_grpo.env.sandbox import Limits, Sandbox, SqlError
from sqale_grpo.env.schema import SchemaGraph
from sqale_grpo.sampler import open_episode_database
from tests.helpers.corpora import GOOD, SHOP, database, dropped, own_questions

pytestmark = pytest.mark.full

VIRTUAL = """
CREATE VIRTUAL TABLE notes USING fts5 (title, body);
INSERT INTO notes VALUES ('one', 'the quick fox'), ('two', 'a lazy dog');
CREATE VIRTUAL TABLE old_notes USING fts4 (title, body);
INSERT INTO old_notes VALUES ('one', 'the quick fox'), ('two', 'a lazy dog');
CREATE VIRTUAL TABLE boxes USING rtree (id, x0, x1);
INSERT INTO boxes VALUES (1, 0, 2), (2, 5, 9);
CREATE TABLE stored (id INTEGER PRIMARY KEY, a TEXT);
INSERT INTO stored VALUES (1, 'alpha'), (2, 'beta');
CREATE VIRTUAL TABLE searched USING fts5 (a, content = 'stored', content_rowid = 'id');
INSERT INTO searched (searched) VALUES ('rebuild');
CREATE TABLE pragma_settings (name TEXT);
INSERT INTO pragma_settings VALUES ('dark');
"""
GOLDS = {
    "SELECT title FROM notes WHERE notes MATCH 'fox'": ("notes",),
    "SELECT count(*) FROM notes": ("notes",),
    "SELECT title FROM old_notes WHERE old_notes MATCH 'fox'": ("old_notes",),
    "SELECT id FROM boxes WHERE x1 < 5": ("boxes",),
    "SELECT a FROM searched WHERE searched MATCH 'beta'": ("stored", "searched"),
    "SELECT count(*) FROM notes_content": ("notes",),
    "SELECT n.title, c.name FROM notes AS n, City AS c WHERE c.id = n.rowid": ("City", "notes"),
    "SELECT name FROM pragma_settings": ("pragma_settings",),
}


def test_virtual_tables_are_tables(tmp_path: Path) -> None:
    """Full-text and R-tree golds run; the tables that store them are no gold tables, but their owners are."""
    source = own_questions(tmp_path / "in", GOLDS)
    (source / "databases/shop/shop.sqlite").unlink()
    database(source / "databases/shop/shop.sqlite", SHOP + VIRTUAL)
    corpus = prepare("jsonl", source, tmp_path / "out", progress=False, workers=1)
    assert dropped(tmp_path / "out") == {}
    assert dict(zip(corpus.gold_sqls(), map(tuple, corpus.column("gold_tables")), strict=True)) == GOLDS
    path = corpus.database("shop")
    assert corpus.databases()[0]["tables"] == len(SchemaGraph.from_file(path).tables)
    for sql, tables in GOLDS.items():
        with open_episode_database(path, tables) as episode, Sandbox(episode.path) as sandbox:
            assert len(sandbox.execute(sql).rows) >= 1


def test_a_module_that_this_sqlite_lacks_costs_its_own_questions(tmp_path: Path) -> None:
    source = own_questions(tmp_path / "in", [GOOD, "SELECT a FROM places"])
    path = source / "databases/shop/shop.sqlite"
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA writable_schema = ON")
        ddl = "CREATE VIRTUAL TABLE places USING no_such_module (a)"
        connection.execute("INSERT INTO sqlite_master VALUES ('table', 'places', 'places', 0, ?)", (ddl,))
    connection.close()
    corpus = prepare("jsonl", source, tmp_path / "out", progress=False, workers=1)
    assert corpus.gold_sqls() == [GOOD] and dropped(tmp_path / "out") == {"q1": "gold does not execute"}


REFUSED = {
    "pattern": f"SELECT 1 FROM City WHERE name LIKE '{'a%' * 3000}'",
    # Rows of 900 kB: 90 MB of them are no result, 900 MB of them no sort.
    "result": "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 100) "
    "SELECT printf('%900000d', x) FROM n, City WHERE City.id = 1",
    "sort": "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 900) "
    "SELECT count(*) FROM (SELECT DISTINCT printf('%900000d', x) FROM n), City WHERE City.id = 1",
    "extension": "SELECT load_extension('x') FROM City",
    "rtree": "SELECT name FROM City WHERE rtreenode(2, x'00') IS NULL",
    "dbstat": "SELECT City.name FROM City, dbstat",
    "stmt": "SELECT City.name FROM City, sqlite_stmt",
    "pragma": "SELECT data_version FROM pragma_data_version, City",
    "statistics": "SELECT stat FROM sqlite_stat1, City",
}
RUN = [
    "SELECT name FROM City;;",
    "SELECT name FROM City; -- the end",
    "/* first */ SELECT name FROM City WHERE name LIKE 'R%'",
    "WITH c AS (SELECT * FROM City) SELECT count(*) FROM c",
    "SELECT j.value FROM City, json_each('[1, 2]') AS j",
    "SELECT DISTINCT printf('%900000d', a.id * 1000 + b.id * 100 + c.id) IS NULL FROM City a, City b, City c",
    # Some 200 MB to tell 115 long rows apart, of the environment's 256.
    "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 115) "
    "SELECT count(*) FROM (SELECT DISTINCT printf('%900000d', x) FROM n), City WHERE City.id = 1",
]


def test_what_the_environment_would_refuse_is_dropped(tmp_path: Path) -> None:
    source = own_questions(tmp_path / "in", [GOOD, *REFUSED.values()])
    corpus = prepare("jsonl", source, tmp_path / "out", progress=False, workers=1)
    assert corpus.gold_sqls() == [GOOD]
    with Sandbox(corpus.database("shop")) as sandbox:
        for name, sql in REFUSED.items():
            with pytest.raises(SqlError):
                sandbox.execute(sql)
                pytest.fail(name)


def test_what_the_environment_runs_is_kept(tmp_path: Path) -> None:
    source = own_questions(tmp_path / "in", RUN)
    corpus = prepare("jsonl", source, tmp_path / "out", seconds=60, progress=False, workers=1)
    with Sandbox(corpus.database("shop"), Limits(seconds=60)) as sandbox:
        assert corpus.column("n_rows") == [len(sandbox.execute(sql).rows) for sql in RUN]
    assert [list(tables) for tables in corpus.column("gold_tables")] == [["City"]] * len(RUN)


def test_a_lack_of_memory_costs_its_own_question(tmp_path: Path) -> None:
    greedy = (
        "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 900) "
        "SELECT count(*) FROM (SELECT DISTINCT printf('%900000d', x) FROM n), City"
    )
    source = own_questions(tmp_path / "in", [greedy, GOOD, greedy, "SELECT count(*) FROM City"])
    corpus = prepare("jsonl", source, tmp_path / "out", seconds=60, progress=False, workers=1)
    assert corpus.column("question_id") == ["q1", "q3"]
    lines = (tmp_path / "out/dropped.jsonl").read_text().splitlines()
    assert [(line["question_id"], line["detail"]) for line in map(json.loads, lines)] == [
        ("q0", "out of memory"),
        ("q2", "out of memory"),
    ]


def test_more_steps_where_the_environment_allows_more(tmp_path: Path) -> None:
    """Ten steps a number: what decides is their count, and not how fast this machine is."""
    counting = "WITH n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 50000) SELECT count(*) FROM n, City"
    source = own_questions(tmp_path / "in", [GOOD, counting])
    for steps, kept in ((100_000, ["q0"]), (10_000_000, ["q0", "q1"])):
        out = tmp_path / f"out{steps}"
        assert prepare("jsonl", source, out, steps=steps, progress=False, workers=1).column("question_id") == kept
    (line,) = (tmp_path / "out100000/dropped.jsonl").read_text().splitlines()
    assert json.loads(line)["detail"] == "the query took more than 0.1 million steps"
    with pytest.raises(Exception, match="its steps was 100000 and now is None"):
        prepare("jsonl", source, tmp_path / "out100000", progress=False)


def test_more_rows_where_the_environment_allows_more(tmp_path: Path) -> None:
    many = "SELECT a.id FROM City a, City b, City c, City d, City e, City f, City g"
    source = own_questions(tmp_path / "in", [GOOD, many])
    for rows, kept in ((20_000, 2), (1, 0)):
        out = tmp_path / f"out{rows}"
        try:
            corpus = prepare("jsonl", source, out, max_rows=rows, progress=False, workers=1)
            assert len(corpus) == kept
        except Exception as error:
            assert kept == 0 and "2 gold returns too many rows" in str(error)
    plain = prepare("jsonl", source, tmp_path / "plain", progress=False, workers=1)
    assert len(plain) == 1 and "max_rows" not in json.loads((tmp_path / "plain/prepared.json").read_text())["key"]
    with pytest.raises(Exception, match="its max_rows was None and now is 5"):
        prepare("jsonl", source, tmp_path / "plain", max_rows=5, progress=False)
    with pytest.raises(Exception, match="its max_rows was 20000 and now is None"):
        prepare("jsonl", source, tmp_path / "out20000", progress=False)
