"""Bombs against the sandbox: each ends on time, costs only its own answer, and holds up nobody."""

import os
import signal
import sqlite3
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from sqale_grpo.env.sandbox import Limits, Sandbox, SqlError, WorkerPool
from tests.helpers.bombs import BOMBS, DEAF, ENDLESS
from tests.helpers.patience import patience

pytestmark = pytest.mark.full

"""The workers behind the sandbox: what ends, what is replaced, what is left behind, who waits for whom."""


ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def database(tmp_path) -> Path:
    path = tmp_path / "d.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript("CREATE TABLE n(a INTEGER);")
        connection.executemany("INSERT INTO n VALUES (?)", [(i,) for i in range(100)])
        connection.commit()
    return path


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_bomb_ends_on_time_and_the_next_query_is_answered_at_once(database, bomb):
    with WorkerPool(workers=1) as pool, Sandbox(database, Limits(seconds=0.5), pool) as sandbox:
        sandbox.execute("SELECT 1")
        start = time.monotonic()
        with pytest.raises(SqlError) as caught:
            sandbox.execute(bomb)
        assert time.monotonic() - start < 1.5 * patience()
        assert caught.value.kind in ("timeout", "memory")
        if caught.value.kind == "timeout":
            assert caught.value.message == "the query ran longer than 0.5 s"
        start = time.monotonic()
        assert sandbox.execute("SELECT count(*) FROM n").rows == [(100,)]
        assert time.monotonic() - start < 0.4 * patience()


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_bomb_among_several_queries_costs_only_its_own_answer(database, bomb):
    good = [(f"SELECT max(a) + {i} FROM n", None) for i in range(4)]
    with WorkerPool(workers=1) as pool, Sandbox(database, Limits(seconds=0.5), pool) as sandbox:
        sandbox.execute("SELECT 1")
        start = time.monotonic()
        results = sandbox.execute_many([*good[:2], (bomb, None), *good[2:]])
        assert time.monotonic() - start < 1.6 * patience()
        ended = results.pop(2)
        assert isinstance(ended, SqlError) and ended.kind in ("timeout", "memory")
        assert [result.rows for result in results] == [[(99 + i,)] for i in range(4)]


@pytest.mark.long
@pytest.mark.full
def test_a_worker_that_cannot_say_which_query_hung_costs_no_other_answer(database):
    good = [(f"SELECT max(a) + {i} FROM n", None) for i in range(4)]
    with WorkerPool(workers=1) as pool, Sandbox(database, Limits(seconds=2.0), pool) as sandbox:
        sandbox.execute("SELECT 1")
        process = pool.pids[0]
        stop = threading.Timer(0.5, os.kill, (process, signal.SIGSTOP))
        stop.start()
        results = sandbox.execute_many([*good[:2], (ENDLESS, None), *good[2:]])
        stop.join()
    ended = results.pop(2)
    assert isinstance(ended, SqlError) and ended.kind == "timeout"
    assert [result.rows for result in results] == [[(99 + i,)] for i in range(4)]


@pytest.mark.full
def test_several_queries_each_have_the_time_limit(database):
    wait = ENDLESS.replace("FROM c)", "FROM c WHERE x < 400000)")
    with WorkerPool(workers=1) as pool:
        with Sandbox(database, Limits(), pool) as sandbox:
            start = time.monotonic()
            sandbox.execute_many([(wait, None)] * 3)
            limit = 4 * (time.monotonic() - start)  # twelve times one, less than twenty
        with Sandbox(database, Limits(seconds=limit), pool) as sandbox:
            results = sandbox.execute_many([(wait, None)] * 20)
    assert [result.rows for result in results] == [[(400000,)]] * 20


@pytest.mark.full
def test_the_query_that_ends_its_worker_is_found_among_several(database):
    slow = patience()
    with WorkerPool(workers=1) as pool, Sandbox(database, Limits(seconds=3.0 * slow), pool) as sandbox:
        sandbox.execute("SELECT 1")
        for delay in (0.2 * slow, 0.6 * slow):  # the second falls when the queries are asked one by one
            threading.Timer(delay, lambda: os.kill(pool.pids[0], signal.SIGSEGV)).start()
        before, ended, after = sandbox.execute_many([("SELECT 'before'", 1), (ENDLESS, 1), ("SELECT 'after'", 1)])
    assert (before.rows, after.rows) == ([("before",)], [("after",)])
    assert ended.message == "the query ended its worker process (exit code -11)"


def test_time_limits_differ_by_sandbox(database):
    with WorkerPool(workers=1) as pool:
        for seconds in (0.2, 0.6, 0.3):
            with Sandbox(database, Limits(seconds=seconds), pool) as sandbox:
                start = time.monotonic()
                with pytest.raises(SqlError, match="timeout"):
                    sandbox.execute(ENDLESS)
                assert seconds <= time.monotonic() - start < seconds + patience()


def honest_and_bombs(sandboxes: list[Sandbox], index: int) -> str:
    """One episode: 20 queries with known answers; every 8th episode drops a bomb in the middle."""
    sandbox = sandboxes[index % len(sandboxes)]
    for step in range(20):
        if index % 8 == 0 and step == 10:
            with pytest.raises(SqlError) as caught:
                sandbox.execute(BOMBS[index // 8 % len(BOMBS)])
            assert caught.value.kind in ("timeout", "memory")
        result = sandbox.execute(f"SELECT a, {index} FROM n WHERE a >= {step} ORDER BY a", max_rows=2)
        assert result.rows == [(step, index), (step + 1, index)] and result.truncated
    return "done"


@pytest.mark.long
def test_honest_episodes_finish_beside_bombs_on_64_threads(database):
    with WorkerPool() as pool, ThreadPoolExecutor(64) as threads:
        sandboxes = [Sandbox(database, Limits(seconds=patience()), pool) for _ in range(8)]
        ends = list(threads.map(lambda index: honest_and_bombs(sandboxes, index), range(64)))
    assert ends == ["done"] * 64


def test_others_do_not_wait_for_a_slow_query(database):
    with WorkerPool(workers=1) as pool, Sandbox(database, Limits(seconds=2.0), pool) as sandbox:
        sandbox.execute("SELECT 1")
        slow = threading.Thread(target=lambda: pytest.raises(SqlError, sandbox.execute, DEAF[1]))
        slow.start()
        time.sleep(0.1)
        start = time.monotonic()
        for _ in range(5):
            assert sandbox.execute("SELECT sum(a) FROM n").rows == [(4950,)]
        assert time.monotonic() - start < patience()
        slow.join()


def test_memory_limits_differ_by_sandbox(database):
    grow = "SELECT length(json_group_array(printf('%.*c', 90000, 'a'))) FROM n, n AS m LIMIT 1"  # 900 MB
    half = "SELECT length(json_group_array(printf('%.*c', 90000, 'a'))) FROM n, n AS m WHERE m.a < 5"  # 45 MB, doubled
    with WorkerPool(workers=1) as pool:
        small = Sandbox(database, Limits(memory_mb=32, length=500_000_000), pool)
        large = Sandbox(database, Limits(memory_mb=512, length=500_000_000), pool)
        for _ in range(2):
            with pytest.raises(SqlError, match="memory: out of memory"):
                small.execute(half)
            assert large.execute(half).rows[0][0] > 45_000_000
        with pytest.raises(SqlError, match="memory"):
            large.execute(grow)
