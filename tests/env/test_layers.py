"""Every layer of the sandbox holds by itself: where the authorizer is taken away, the next one refuses.

From outside only the authorizer is seen, since it comes first; a layer behind it could be lost without a sign.
"""

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from sqale_grpo.env.connect import read_only_uri
from sqale_grpo.env.limits import Limits
from sqale_grpo.env.pool import WorkerPool
from sqale_grpo.env.query import Connection
from sqale_grpo.env.sandbox import Sandbox
from tests.helpers.people import SCHEMA, build

VIEW = "CREATE VIEW evil AS SELECT load_extension('x.so');"


@pytest.fixture
def database(tmp_path) -> Path:
    return build(tmp_path / "d.sqlite", SCHEMA + VIEW)


@pytest.fixture
def bare(database):
    """A worker's connection without its authorizer."""
    connection = Connection(read_only_uri(database), vars(Limits()))
    with closing(connection.sqlite):
        connection.sqlite.set_authorizer(None)
        yield connection.sqlite


def test_the_file_is_opened_for_reading_only(bare):
    bare.execute("PRAGMA query_only = 0")
    with pytest.raises(sqlite3.OperationalError, match="attempt to write a readonly database"):
        bare.execute("DELETE FROM pet")


def test_a_connection_writes_nothing_anywhere(bare):
    assert bare.execute("PRAGMA query_only").fetchone() == (1,)
    with pytest.raises(sqlite3.OperationalError, match="attempt to write a readonly database"):
        bare.execute("CREATE TEMP TABLE pet AS SELECT 1")
    with pytest.raises(sqlite3.OperationalError, match="too many attached databases"):
        bare.execute("ATTACH ':memory:' AS other")


def test_views_of_the_file_are_not_trusted(bare):
    assert bare.execute("PRAGMA trusted_schema").fetchone() == (0,)
    with pytest.raises(sqlite3.OperationalError, match="unsafe use of load_extension"):
        bare.execute("SELECT * FROM evil")
    with pytest.raises(sqlite3.OperationalError, match="not authorized"):
        bare.execute("SELECT load_extension('x.so')")


def test_nothing_of_a_query_is_kept_for_the_next(bare):
    bare.execute("SELECT name FROM Person").fetchall()
    assert bare.execute("SELECT sql FROM sqlite_stmt WHERE sql LIKE '%FROM Person'").fetchall() == []
    assert bare.execute("PRAGMA temp_store").fetchone() == (2,)  # in memory


@pytest.mark.skipif(not os.path.exists("/proc/self/limits"), reason="reads /proc")
def test_a_worker_process_can_write_no_file_and_goes_first_when_memory_ends(database):
    with WorkerPool(workers=1) as pool, Sandbox(database, pool=pool) as sandbox:
        sandbox.execute("SELECT 1")
        process = Path(f"/proc/{pool.pids[0]}")
        lines = (process / "limits").read_text().splitlines()
        bounds = {line[:26].strip(): line[26:].split()[:2] for line in lines}
        assert bounds["Max file size"] == bounds["Max core file size"] == ["0", "0"]
        assert bounds["Max data size"][0] != "unlimited"
        assert (process / "oom_score_adj").read_text().strip() == "1000"
