"""Which golds are marked unstable, and why."""

from pathlib import Path

import pytest

from sqale_grpo.corpus.gold import GoldDatabase
from sqale_grpo.corpus.stability import Probes
from sqale_grpo.env.sandbox import Sandbox
from tests.helpers.corpora import database

SCRIPT = """
CREATE TABLE runner (id INTEGER PRIMARY KEY, name TEXT, team TEXT, points INT, weight REAL, born TEXT);
INSERT INTO runner VALUES (1, 'Ann', 'red', 5, 60.1, '1990-01-01'), (2, 'Bob', 'red', 9, 70.2, '1991-01-01'),
  (3, 'Cid', 'blue', 9, 80.3, '1992-01-01'), (4, 'Dan', 'blue', 1, 0.1, '1993-01-01'),
  (5, 'Eve', 'green', 3, 1e9, NULL);
CREATE TABLE pair (a TEXT COLLATE NOCASE, b INT, PRIMARY KEY (a, b)) WITHOUT ROWID;
INSERT INTO pair VALUES ('x', 1), ('Y', 2), ('z', 3);
"""


@pytest.fixture(scope="module")
def runners(tmp_path_factory: pytest.TempPathFactory) -> GoldDatabase:
    return GoldDatabase(database(tmp_path_factory.mktemp("stability") / "runners.sqlite", SCRIPT))


def cause(runners: GoldDatabase, sql: str) -> str:
    judgement = runners.judge(sql, 5)
    assert not judgement.verdict.dropped, judgement.verdict
    probes = Probes(runners)
    found = probes.cause(sql, judgement, 5)
    probes.close()
    return found


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT name FROM runner WHERE born < date('now', '-40 years')", "clock"),
        ("SELECT CURRENT_DATE > '2030-01-01' FROM runner", "clock"),
        ("SELECT name FROM runner WHERE strftime('%Y', 'now') - strftime('%Y', born) > 50", "clock"),
        ("SELECT count(*) FROM runner WHERE julianday() - julianday(born) > 9000", "clock"),
        ("SELECT name FROM runner ORDER BY random() LIMIT 1", "random"),
        ("SELECT name, abs(random()) FROM runner", "random"),
        ("SELECT name FROM runner ORDER BY points DESC LIMIT 1", "limit_ties"),
        ("SELECT name FROM runner LIMIT 2", "limit_ties"),
        ("SELECT team FROM runner GROUP BY team ORDER BY count(*) DESC LIMIT 1", "limit_ties"),
        (
            "SELECT count(*) FROM runner WHERE weight > (SELECT weight FROM runner ORDER BY points DESC LIMIT 1)",
            "limit_ties",
        ),
        ("SELECT DISTINCT name FROM runner ORDER BY points / 100", "tie_order"),
        ("SELECT team, group_concat(name) FROM runner GROUP BY team", "concat_order"),
        ("SELECT json_group_array(name) FROM runner", "concat_order"),
        ("SELECT team, name FROM runner GROUP BY team", "row_order"),
        (
            "SELECT name FROM (SELECT name, row_number() OVER (ORDER BY points DESC) r FROM runner) WHERE r = 1",
            "row_order",
        ),
    ],
)
def test_unstable(runners: GoldDatabase, sql: str, expected: str) -> None:
    assert cause(runners, sql) == expected


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT id FROM small ORDER BY points DESC LIMIT 1", "limit_ties"),
        ("SELECT id FROM large ORDER BY points DESC LIMIT 1", "limit_ties"),
        ("SELECT DISTINCT id FROM large ORDER BY points", "tie_order"),
        ("SELECT DISTINCT id FROM large ORDER/**/BY points", "tie_order"),
        ("SELECT id FROM large ORDER BY points", ""),  # ties that the comparison knows
        ("SELECT 1 + abs(random()) % 2 FROM small", "random"),
        ("SELECT 90000000 + abs(random()) % 2 FROM large", "random"),
        ("SELECT sum(id * 0.1), avg(id) FROM large", ""),
    ],
)
def test_large_integers_differ_as_small_ones_do(tmp_path: Path, sql: str, expected: str) -> None:
    """Two integers are equal only when they are the same, as for the reward; a tolerance is for reals alone."""
    script = "".join(
        f"CREATE TABLE {table} (id INTEGER PRIMARY KEY, points INT);"
        f"INSERT INTO {table} VALUES ({first}, 5), ({first + 1}, 5), ({first + 2}, 1);"
        for table, first in (("small", 1), ("large", 20230001))
    )
    numbers = GoldDatabase(database(tmp_path / "numbers.sqlite", script))
    assert cause(numbers, sql) == expected


def test_a_clock_beside_a_generated_column_that_calls_its_functions(tmp_path: Path) -> None:
    script = """
    CREATE TABLE person (id INTEGER PRIMARY KEY, born TEXT, year TEXT AS (strftime('%Y', born)));
    INSERT INTO person (id, born) VALUES (1, '1950-01-01'), (2, '2000-01-01');
    """
    people = GoldDatabase(database(tmp_path / "people.sqlite", script))
    assert cause(people, "SELECT id FROM person WHERE year < strftime('%Y', 'now', '-40 years')") == "clock"


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT name FROM runner",
        "SELECT name FROM runner ORDER BY points, name",
        "SELECT points FROM runner ORDER BY points",
        "SELECT points FROM runner ORDER BY points DESC LIMIT 1",
        "SELECT name FROM runner ORDER BY points LIMIT 2",
        "SELECT team, max(points), name FROM runner WHERE team = 'red' GROUP BY team",
        "SELECT avg(weight), sum(weight), total(weight) FROM runner",
        "SELECT name FROM runner WHERE date(born) < '1992-01-01' AND strftime('%m', born) = '01'",
        "SELECT count(*) FROM runner WHERE random() IS NOT NULL",
        "SELECT rowid, name FROM runner",
        "SELECT a FROM pair WHERE a = 'y' AND b = 2",
        "SELECT name FROM runner WHERE points > 100 ORDER BY points LIMIT 3",
        "SELECT * FROM runner AS r JOIN runner AS s ON s.points = r.points",
        "SELECT team, count(*) AS n FROM runner GROUP BY team ORDER BY n, team",
    ],
)
def test_stable(runners: GoldDatabase, sql: str) -> None:
    assert cause(runners, sql) == ""


def test_reversed_scan_of_an_index_alone(tmp_path: Path) -> None:
    """Falling keys in rising rows: an index scan shows the rows as a reversed copy would, so only the PRAGMA tells."""
    script = "CREATE TABLE t (a INT); CREATE INDEX i ON t (a); INSERT INTO t VALUES (3), (2), (1);"
    unstable = GoldDatabase(database(tmp_path / "t.sqlite", script))
    assert cause(unstable, "SELECT a FROM t WHERE a > 0 LIMIT 2") == "limit_ties"


def test_a_table_that_cannot_be_copied_proves_nothing(tmp_path: Path) -> None:
    """A picture over the limit on blobs ends the copy; an empty copy would make every question unstable."""
    script = "CREATE TABLE t (id INT, picture BLOB); INSERT INTO t VALUES (1, zeroblob(2000000)), (2, NULL);"
    pictures = GoldDatabase(database(tmp_path / "t.sqlite", script))
    assert cause(pictures, "SELECT id FROM t") == ""
    assert cause(pictures, "SELECT id FROM t LIMIT 1") == "limit_ties"


def test_a_copy_keeps_every_value(tmp_path: Path) -> None:
    script = "CREATE TABLE t (a ANY, b INT) STRICT; INSERT INTO t VALUES ('1', 1), (2, 2), ('03', 3);"
    values = GoldDatabase(database(tmp_path / "t.sqlite", script))
    assert cause(values, "SELECT a, b FROM t") == ""


def test_probes_leave_the_connection_that_judges_alone(runners: GoldDatabase) -> None:
    cause(runners, "SELECT name, date('now') FROM runner LIMIT 1")
    query = "SELECT date('now') = date(julianday('now')), id FROM runner LIMIT 1"
    assert runners.judge(query, 5).rows == [(1, 1)]
    with Sandbox(runners.path) as sandbox:
        assert sandbox.execute(query).rows == [(1, 1)]
