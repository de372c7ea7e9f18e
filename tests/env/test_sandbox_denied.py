"""What the sandbox refuses, anything but reading this database, and what it must not refuse."""

from pathlib import Path

import pytest

from sqale_grpo.env.sandbox import Limits, Sandbox, WorkerPool
from tests.helpers.people import SCHEMA, build, failure


@pytest.fixture(scope="module")
def pool():
    with WorkerPool(workers=1) as pool:
        yield pool


@pytest.fixture
def database(tmp_path) -> Path:
    return build(tmp_path / "d.sqlite", SCHEMA)


@pytest.fixture
def sandbox(database, pool):
    with Sandbox(database, Limits(seconds=2.0), pool) as sandbox:
        yield sandbox


@pytest.mark.parametrize(
    "sql",
    [
        "INSERT INTO pet VALUES (3, 'fox') RETURNING kind",
        "CREATE TABLE new(a)",
        "CREATE TEMP TABLE pet AS SELECT 1",
        "CREATE TEMP TRIGGER t AFTER INSERT ON pet BEGIN SELECT 1; END",
        "CREATE VIRTUAL TABLE f USING fts5(a)",
        "DROP VIEW owners",
        "DROP INDEX pets",
        "ALTER TABLE pet RENAME TO animal",
        "REINDEX",
        "ANALYZE pet",
        "VACUUM",
        "ATTACH 'other.sqlite' AS other",
        "BEGIN",
        "ROLLBACK",
        "SAVEPOINT a",
        "RELEASE a",
        "EXPLAIN DELETE FROM pet",
        "SELECT load_extension('x')",
        "SELECT fts3_tokenizer('simple')",
        "SELECT sqlite_log(1, 'x')",
        "SELECT rtreenode(2, x'00')",
        "SELECT sql FROM sqlite_stmt",
        "SELECT count(*) FROM sqlite_stmt",
        "SELECT * FROM dbstat",
        "SELECT count(*) FROM dbstat",
        "SELECT * FROM pragma_database_list",
        "SELECT count(*) FROM pragma_database_list",
        "PRAGMA writable_schema = ON",
        "PRAGMA query_only = OFF",
        "PRAGMA trusted_schema = ON",
        "PRAGMA temp_store_directory",
        "PRAGMA mmap_size = 0",
        "PRAGMA cache_size = 1",
        "PRAGMA encoding",
        "PRAGMA wal_checkpoint",
        "PRAGMA optimize",
        "PRAGMA integrity_check",
        "PRAGMA no_such_pragma",
    ],
)
def test_anything_but_reading_is_denied(sandbox, database, sql):
    before = database.read_bytes()
    assert failure(sandbox, sql).kind == "denied"
    assert database.read_bytes() == before
    assert [path.name for path in database.parent.iterdir()] == [database.name]


@pytest.mark.parametrize("name", ["table_info(pet)", "table_xinfo(pet)", "table_list", "index_list(pet)"])
def test_pragmas_that_describe_the_schema_work(sandbox, name):
    assert sandbox.execute(f"PRAGMA {name}").rows


def test_a_common_table_may_have_any_name(sandbox):
    for name in ("completion", "fsdir_rates", "dbstats", "zipfiles", "Person"):
        assert sandbox.execute(f"WITH {name} AS (VALUES (1), (2)) SELECT count(*) FROM {name}").rows == [(2,)]


def test_refused_settings_change_no_later_answer(sandbox):
    for pragma in ("case_sensitive_like = ON", "reverse_unordered_selects = ON", "short_column_names = OFF"):
        assert failure(sandbox, f"PRAGMA {pragma}").kind == "denied"
    assert sandbox.execute("SELECT 'A' LIKE 'a', id FROM Person").rows == [(1, 1), (1, 2), (1, 3)]
