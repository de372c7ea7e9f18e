"""Views in an episode's database: there with all the tables that they read, and never without."""

from pathlib import Path

import pytest

from sqale_grpo.env.episode import EpisodeLimits
from sqale_grpo.env.protocol import ToolCall
from sqale_grpo.env.sandbox import Sandbox, SqlError
from sqale_grpo.env.schema import SchemaGraph
from sqale_grpo.env.tools import run_tool
from sqale_grpo.sampler.source import read_source
from sqale_grpo.sampler.views import MOST_PARTS, view_entries
from tests.helpers.corpora import database
from tests.helpers.databases import rows
from tests.sampler.conftest import Opener

SCRIPT = """
CREATE TABLE a (id INTEGER PRIMARY KEY, name TEXT);
CREATE TABLE b (id INTEGER PRIMARY KEY, a_id INT REFERENCES a (id), cost REAL);
CREATE TABLE c (id INTEGER PRIMARY KEY, note TEXT);
CREATE VIRTUAL TABLE words USING fts5 (text);
INSERT INTO a VALUES (1, 'x'), (2, 'y');
INSERT INTO b VALUES (1, 1, 2.5), (2, 1, 4);
INSERT INTO words VALUES ('a fox');
CREATE VIEW "costs of a" (name, cost) AS SELECT a.name, sum(b.cost) FROM a LEFT JOIN b ON b.a_id = a.id GROUP BY a.id;
CREATE VIEW dear AS SELECT * FROM "costs of a" WHERE cost > 1;
CREATE VIEW notes AS SELECT note FROM c WHERE id IN (SELECT id FROM b);
CREATE VIEW said AS SELECT text FROM words;
CREATE VIEW tables AS SELECT name FROM sqlite_master;
CREATE VIEW columns AS SELECT name FROM pragma_table_info('a');
CREATE VIEW broken AS SELECT missing FROM a;
CREATE VIEW lost AS SELECT * FROM gone;
CREATE VIEW constant AS SELECT 1 AS one;
CREATE VIEW parted AS SELECT a.id, j.value FROM a, json_each('[1, 2]') j;
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return database(tmp_path / "source.sqlite", SCRIPT)


def views(path: Path) -> set[str]:
    return set(SchemaGraph.from_file(path).views)


def test_a_view_comes_with_the_tables_that_it_reads(source: Path, opener: Opener) -> None:
    shown = {
        ("a",): {"parted"},
        ("a", "b"): {"costs of a", "dear", "parted"},
        ("b", "c"): {"notes"},
        ("c",): set(),
        ("words",): {"said"},
        ("words", "c", "b", "a"): {"costs of a", "dear", "notes", "said", "parted"},
    }
    for tables, expected in shown.items():
        with opener(source, tables) as path:
            assert views(path) == expected, tables
            for name in expected:
                assert rows(path, f'SELECT * FROM "{name}"') == rows(source, f'SELECT * FROM "{name}"')


def test_a_policy_lists_describes_and_samples_it(source: Path, opener: Opener) -> None:
    limits = EpisodeLimits()
    with opener(source, ["b", "a"]) as path, Sandbox(path) as sandbox:

        def said(tool: str, **arguments: object) -> str:
            return run_tool(ToolCall(tool, arguments), sandbox, limits).text

        assert said("list_tables").splitlines()[1] == "Views: costs of a, dear, parted"
        assert said("describe_table", table_name="dear").startswith("CREATE VIEW dear AS")
        assert said("sample_rows", table_name="costs of a").splitlines()[1:] == ["x | 6.5", "y | None"]
        assert said("distinct_values", table_name="dear", column_name="name").splitlines()[1:] == ["x"]
        assert said("run_query", sql="SELECT name FROM dear").splitlines()[1:] == ["x"]
        result = sandbox.execute("SELECT name FROM dear")
        assert result.tables == {"a", "b"}


def test_a_hidden_view_does_not_exist(source: Path, opener: Opener) -> None:
    with opener(source, ["a"]) as path, Sandbox(path) as sandbox:
        for name in ("dear", '"costs of a"', "notes", "broken", "lost", "tables"):
            with pytest.raises(SqlError, match="no such table"):
                sandbox.execute(f"SELECT * FROM {name}")


def test_views_that_double_each_other_are_left_out(tmp_path: Path, opener: Opener) -> None:
    doubling = "".join(f"CREATE VIEW v{n} AS SELECT x.id FROM v{n - 1} x, v{n - 1} y;" for n in range(1, 60))
    path = database(
        tmp_path / "doubling.sqlite", f"CREATE TABLE t (id INT); CREATE VIEW v0 AS SELECT id FROM t; {doubling}"
    )
    found = [entry.name for entry in view_entries(read_source(path))]
    assert found == [f"v{n}" for n in range(7)] and 2**7 < MOST_PARTS < 2**8
    with opener(path, ["t"]) as episode:
        assert views(episode) == set(found)


def test_a_view_inside_itself_is_left_out(tmp_path: Path, opener: Opener) -> None:
    script = "CREATE TABLE t (id INT); CREATE VIEW one AS SELECT id FROM two; CREATE VIEW two AS SELECT id FROM one;"
    path = database(tmp_path / "circle.sqlite", script)
    with opener(path, ["t"]) as episode:
        assert views(episode) == set()
