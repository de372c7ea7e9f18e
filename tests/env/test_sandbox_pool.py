"""The workers behind the sandbox: what ends, what is replaced, what they see, what is left behind."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path

import pytest

from sqale_grpo.env import pool as pool_module
from sqale_grpo.env.episode import Episode
from sqale_grpo.env.sandbox import Limits, Sandbox, SqlError, WorkerPool
from tests.helpers.bombs import DEAF, ENDLESS
from tests.helpers.patience import running, wait_until

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def database(tmp_path) -> Path:
    path = tmp_path / "d.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript("CREATE TABLE n(a INTEGER);")
        connection.executemany("INSERT INTO n VALUES (?)", [(i,) for i in range(100)])
        connection.commit()
    return path


def descriptors(pid: int | str = "self") -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def test_a_worker_killed_while_idle_is_replaced(database):
    with WorkerPool(workers=1) as pool, Sandbox(database, Limits(), pool) as sandbox:
        sandbox.execute("SELECT 1")
        for pid in pool.pids:
            os.kill(pid, signal.SIGKILL)
        assert wait_until(lambda: not any(map(running, pool.pids)))
        assert sandbox.execute("SELECT max(a) FROM n").rows == [(99,)]


@pytest.mark.parametrize("how, kind", [(signal.SIGSEGV, "other"), (signal.SIGABRT, "other")])
def test_a_worker_that_dies_under_a_query_is_that_querys_error(database, how, kind):
    with WorkerPool(workers=1) as pool, Sandbox(database, Limits(), pool) as sandbox:
        sandbox.execute("SELECT 1")
        threading.Timer(0.2, os.kill, (pool.pids[0], how)).start()
        with pytest.raises(SqlError) as caught:
            sandbox.execute(ENDLESS)
        assert caught.value.kind == kind
        assert sandbox.execute("SELECT 1").rows == [(1,)]


def test_an_exception_in_the_waiting_thread_leaves_no_stray_answer(database):
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with WorkerPool(workers=1) as pool, Sandbox(database, Limits(), pool) as sandbox:
        before = signal.signal(signal.SIGALRM, interrupt)
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.2)
            with pytest.raises(KeyboardInterrupt):
                sandbox.execute(ENDLESS)
        finally:
            signal.signal(signal.SIGALRM, before)
        assert sandbox.execute("SELECT 'mine'").rows == [("mine",)]


def test_workers_end_with_a_parent_that_is_killed(database):
    script = f"""
import sys, threading, time
from sqale_grpo.env.sandbox import Limits, Sandbox, WorkerPool
pool = WorkerPool(workers=1)
sandbox = Sandbox({str(database)!r}, Limits(seconds=60), pool)
sandbox.execute("SELECT 1")
threading.Thread(target=sandbox.execute, args=({DEAF[1]!r},), daemon=True).start()
time.sleep(0.3)
print(*pool.pids, flush=True)
time.sleep(60)
"""
    with subprocess.Popen([sys.executable, "-c", script], cwd=ROOT, stdout=subprocess.PIPE, text=True) as parent:
        pids = [int(word) for word in parent.stdout.readline().split()]
        assert pids and all(map(running, pids))
        parent.kill()
    assert wait_until(lambda: not any(map(running, pids)), 2.0)


def test_a_forked_child_has_workers_of_its_own(database):
    with WorkerPool(workers=1) as pool, Sandbox(database, Limits(), pool) as sandbox:
        sandbox.execute("SELECT 1")
        before = pool.pids
        child = os.fork()
        if child == 0:
            with suppress(BaseException):
                ok = sandbox.execute("SELECT count(*) FROM n").rows == [(100,)] and not set(before) & set(pool.pids)
                os._exit(0 if ok else 1)
            os._exit(2)
        assert os.waitpid(child, 0)[1] == 0
        assert sandbox.execute("SELECT min(a) FROM n").rows == [(0,)]
        assert pool.pids == before


def test_a_worker_sees_nothing_of_the_trainer(database, monkeypatch):
    monkeypatch.setenv("SECRET_TOKEN", "abc")
    with WorkerPool(workers=1) as pool, Sandbox(database, Limits(), pool) as sandbox:
        sandbox.execute("SELECT 1")
        for pid in pool.pids:
            assert b"SECRET_TOKEN" not in Path(f"/proc/{pid}/environ").read_bytes()
            assert os.readlink(f"/proc/{pid}/cwd") == "/"


def test_two_sandboxes_on_one_file_share_no_connection(database):
    with WorkerPool(workers=1) as pool, Sandbox(database, Limits(), pool) as one:
        one.execute("SELECT 1")
        held = descriptors(pool.pids[0])
        with Sandbox(database, Limits(), pool) as two:
            two.execute("SELECT 1")
            assert descriptors(pool.pids[0]) == held + 1
        assert wait_until(lambda: descriptors(pool.pids[0]) == held)
        assert one.execute("SELECT 2").rows == [(2,)]


def test_connections_unused_longest_are_closed_and_opened_again(database, monkeypatch):
    monkeypatch.setattr(pool_module, "CONNECTIONS", 5)
    with WorkerPool(workers=1) as pool:
        sandboxes = [Sandbox(database, Limits(), pool) for _ in range(12)]
        for _ in range(2):
            for number, sandbox in enumerate(sandboxes):
                assert sandbox.execute(f"SELECT a FROM n WHERE a = {number}").rows == [(number,)]
        assert descriptors(pool.pids[0]) < 5 + 8


def test_a_closed_pool_has_no_processes_and_says_so(database):
    pool = WorkerPool(workers=2)
    sandbox = Sandbox(database, Limits(), pool)
    sandbox.execute("SELECT 1")
    failed = []

    def ask() -> None:
        try:
            sandbox.execute(ENDLESS)
        except RuntimeError as error:
            failed.append(str(error))

    thread = threading.Thread(target=ask)
    thread.start()
    time.sleep(0.2)
    pids = pool.pids
    pool.close()
    thread.join(2.0)
    assert failed == ["this worker pool was closed while the query ran"]
    assert not any(map(running, pids)) and pool.pids == []
    with pytest.raises(RuntimeError, match="this worker pool is closed"):
        sandbox.execute("SELECT 1")
    with pytest.raises(ValueError, match="at least 1 worker"):
        WorkerPool(workers=0)


def test_a_worker_that_cannot_start_is_told(database, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with (
        WorkerPool(workers=1) as pool,
        Sandbox(database, Limits(), pool) as sandbox,
        pytest.raises(RuntimeError, match="worker process did not start .exit code 1."),
    ):
        sandbox.execute("SELECT 1")


@pytest.mark.full
def test_2000_episodes_leave_no_descriptor_and_no_process(database):
    with WorkerPool(workers=2) as pool:

        def episode(number: int) -> int:
            queries = ("SELECT count(*) FROM n", "SELECT missing", f"SELECT {number}")
            calls = [{"tool": "run_query", "args": {"sql": sql}} for sql in queries]
            with Sandbox(database, Limits(), pool) as sandbox:
                episode = Episode("How many?", sandbox)
                episode.step("\n".join(map(json.dumps, calls)))
                results = [call.result for call in episode.turns[0].calls]
            assert results[0] == "count(*)\n100" and "no such column" in results[1]
            return int(results[2].split("\n")[1])

        with ThreadPoolExecutor(4) as threads:
            list(threads.map(episode, range(50)))
            assert wait_until(lambda: len(pool.pids) >= 3)
            before = descriptors() - len(pool.pids), max(map(descriptors, pool.pids))  # one descriptor a process
            assert list(threads.map(episode, range(2000))) == list(range(2000))
        # What earlier tests left to be collected may go meanwhile, so there may be fewer.
        assert wait_until(lambda: descriptors() - len(pool.pids) <= before[0])
        assert wait_until(lambda: max(map(descriptors, pool.pids)) <= before[1])
        assert len(pool.pids) <= 2 * 3 + 1
    assert pool.pids == []
