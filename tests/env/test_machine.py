"""What the machine does to a query is told apart from what the query does: limits, failures, other programs' writes."""

import json
import multiprocessing
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from sqale_grpo.env.command import main
from sqale_grpo.env.connect import OLDEST_SQLITE, check_sqlite
from sqale_grpo.env.episode import Episode, Finished
from sqale_grpo.env.errors import UserError
from sqale_grpo.env.limits import Limits, SqlError
from sqale_grpo.env.pool import WorkerPool
from sqale_grpo.env.sandbox import Sandbox
from tests.helpers.bombs import ENDLESS
from tests.helpers.patience import wait_until

COUNT = "WITH c(x) AS (VALUES(1) UNION ALL SELECT x + 1 FROM c WHERE x < {}) SELECT count(*) FROM c"


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "d.sqlite"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.executescript("CREATE TABLE n(a INTEGER); INSERT INTO n VALUES (1), (2), (3)")
    return path


@pytest.fixture
def pool() -> Iterator[WorkerPool]:
    with WorkerPool(workers=1) as pool:
        yield pool


def test_the_budget_of_a_query_is_counted_in_steps(database: Path, pool: WorkerPool) -> None:
    with Sandbox(database, Limits(seconds=60.0, steps=1_000_000), pool) as sandbox:
        assert sandbox.execute(COUNT.format(50_000)).rows == [(50_000,)]
        with pytest.raises(SqlError, match="timeout: the query took more than 1 million steps"):
            sandbox.execute(COUNT.format(200_000))
        with pytest.raises(SqlError, match="timeout: the query took more than 1 million steps"):
            sandbox.execute(ENDLESS)


@pytest.mark.full
def test_a_query_whose_worker_is_killed_is_run_again(database: Path, pool: WorkerPool) -> None:
    with Sandbox(database, Limits(seconds=60.0), pool) as sandbox:
        sandbox.execute("SELECT 1")
        threading.Timer(0.2, os.kill, (pool.pids[0], signal.SIGKILL)).start()  # as a machine without memory does
        assert sandbox.execute(COUNT.format(5_000_000)).rows == [(5_000_000,)]


def test_a_failure_twice_in_a_row_is_the_machines_and_voids_the_episode(tmp_path: Path, database: Path) -> None:
    with Sandbox(database) as sandbox:
        database.unlink()
        with pytest.raises(SqlError) as caught:
            sandbox.execute("SELECT a FROM n")
        assert caught.value.kind == "machine"
        episode = Episode("?", sandbox)
        call = json.dumps({"tool": "run_query", "args": {"sql": "SELECT a FROM n"}})
        answer = episode.step(f"</think>{call}")
        assert isinstance(answer, Finished) and (answer.sql, answer.ended_by) == (None, "void")
        assert answer.failure and str(database) in answer.failure


def test_a_schema_that_cannot_be_read_voids_the_episode(database: Path) -> None:
    with Sandbox(database) as sandbox:
        episode = Episode("?", sandbox)
        database.unlink()
        answer = episode.step('</think>{"tool": "list_tables", "args": {}}')
    assert isinstance(answer, Finished) and answer.ended_by == "void"
    assert answer.failure and str(database) in answer.failure


def write_on(path: str, stop: object) -> None:
    """Move 1 from row to row; every commit keeps the sum."""
    with closing(sqlite3.connect(path, timeout=30, isolation_level=None)) as connection:
        for number in range(10**9):
            if stop.is_set():  # type: ignore[attr-defined]
                return
            a, b = number % 2000 + 1, number * 7919 % 2000 + 1
            connection.executescript(
                f"BEGIN IMMEDIATE; UPDATE acc SET v = v - 1 WHERE id = {a};"
                f"UPDATE acc SET v = v + 1 WHERE id = {b}; COMMIT"
            )
            time.sleep(0.005)


@pytest.mark.parametrize("mode", ["DELETE", "WAL"])
def test_a_program_that_writes_meanwhile_is_never_seen_in_the_middle(tmp_path: Path, mode: str) -> None:
    path = tmp_path / "bank.sqlite"
    numbers = "WITH c(x) AS (VALUES(1) UNION ALL SELECT x+1 FROM c WHERE x<2000)"
    rows = f"{numbers} INSERT INTO acc SELECT x, 100, hex(zeroblob(60)) FROM c"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(f"PRAGMA journal_mode = {mode}")
        connection.executescript(f"CREATE TABLE acc(id INTEGER PRIMARY KEY, v INT, pad); {rows}")
    context = multiprocessing.get_context("spawn")
    stop = context.Event()
    writer = context.Process(target=write_on, args=(str(path), stop))
    writer.start()
    try:
        seen = []
        with Sandbox(path) as sandbox:
            for _ in range(60):
                seen += sandbox.execute("SELECT sum(v) FROM acc").rows
    finally:
        stop.set()
        writer.join()
    assert set(seen) == {(200_000,)}


def test_a_table_that_a_program_makes_meanwhile_can_be_read(database: Path) -> None:
    with Sandbox(database) as sandbox:
        assert sandbox.execute("SELECT max(a) FROM n").rows == [(3,)]
        with closing(sqlite3.connect(database, isolation_level=None)) as program:
            program.executescript("CREATE TABLE late(b); INSERT INTO late VALUES('x'); PRAGMA journal_mode = WAL")
        assert sandbox.execute("SELECT b FROM late").rows == [("x",)]


def test_what_holds_a_query_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--check"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(" ")[0] for line in lines] == ["SQLite", "landlock:", "seccomp:"]


@pytest.mark.skipif(sys.platform != "linux", reason="the layers are Linux's")
def test_a_confined_process_can_read_and_do_no_harm(tmp_path: Path) -> None:
    script = """if 1:
        import os, socket, sys
        from sqale_grpo.env.confinement import confine
        open(sys.argv[1], "w").write("kept")
        found = confine()
        def refused(act):
            try: act()
            except OSError: return True
            return False
        acts = dict(landlock=[lambda: open(sys.argv[1], "w"), lambda: os.mkdir(sys.argv[1] + "d")],
                    seccomp=[socket.socket, lambda: os.execv("/bin/true", ["true"]), lambda: os.unlink(sys.argv[1])])
        for layer, tried in acts.items():
            works = found[layer].startswith(("version", "6", "5", "4"))
            assert all(map(refused, tried)) or not works, (layer, found)
        assert open(sys.argv[1]).read() == "kept"
    """
    subprocess.run([sys.executable, "-c", script, str(tmp_path / "x")], check=True)


def test_an_old_sqlite_is_refused_in_one_sentence() -> None:
    check_sqlite(OLDEST_SQLITE)
    with pytest.raises(UserError, match=r"SQLite 3\.34\.1 is too old: 3\.37\.0 or newer is needed"):
        check_sqlite((3, 34, 1))


@pytest.mark.parametrize(
    "setup, query, expected",
    [
        ("import socket; socket.setdefaulttimeout(30)", "SELECT 1", "1"),
        ("import os; os.environ['TMPDIR'] = '/nowhere'", "SELECT 1", "1"),
        (
            "import os, time; os.environ['TZ'] = 'Asia/Tokyo'; time.tzset()",
            "SELECT strftime('%H', 0, 'unixepoch', 'localtime')",
            "09",
        ),
    ],
)
def test_the_host_program_changes_nothing(database: Path, setup: str, query: str, expected: str) -> None:
    script = f"""if 1:
        import sys
        {setup}
        from sqale_grpo.env.sandbox import Sandbox
        with Sandbox(sys.argv[1]) as sandbox: print(sandbox.execute(sys.argv[2]).rows[0][0])
    """
    command = [sys.executable, "-c", script, str(database), query]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip() == expected


def test_few_descriptors_are_enough(database: Path) -> None:
    script = """if 1:
        import resource, sys
        from sqale_grpo.env.sandbox import Limits, Sandbox, WorkerPool
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
        with WorkerPool(1) as pool:
            boxes = [Sandbox(sys.argv[1], Limits(), pool) for _ in range(40)]
            print({box.execute("SELECT count(*) FROM n").rows[0][0] for box in boxes})
    """
    command = [sys.executable, "-c", script, str(database)]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "{3}\n"


def test_workers_that_are_all_killed_while_they_start_are_the_machines_failure(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with WorkerPool(1) as pool, Sandbox(database, Limits(seconds=60.0), pool) as sandbox:
        with monkeypatch.context() as patch:
            patch.setattr("sqale_grpo.env.process.BOOT", "import os; os.kill(os.getpid(), 9)")
            with pytest.raises(SqlError, match="machine: no process can run the query: .* in a row were killed"):
                sandbox.execute("SELECT 1")
            assert wait_until(lambda: pool._spare is not None)  # it too was started to be killed
        assert sandbox.execute("SELECT 1").rows == [(1,)]


def test_a_lack_of_descriptors_is_the_machines_failure(database: Path) -> None:
    script = """if 1:
        import os, resource, sys
        from sqale_grpo.env.sandbox import Limits, Sandbox, SqlError, WorkerPool
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        with WorkerPool(1) as pool, Sandbox(sys.argv[1], Limits(), pool) as sandbox:
            resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
            try: sandbox.execute("SELECT 1")
            except SqlError as error: print(error.kind)
            resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
            print(sandbox.execute("SELECT 1").rows)
    """
    command = [sys.executable, "-c", script, str(database)]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "machine\n[(1,)]\n"
