"""Case file sandbox.jsonl: what hostile and harmless statements may do, and that the service goes on after each."""

import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from sqale_grpo.env.sandbox import Limits, Sandbox, SqlError, WorkerPool
from tests.helpers.patience import patience

LIMITS = Limits(seconds=1.0, length=1_000_000, rows=10_000)
OUTCOME = {"denied": "denied", "timeout": "timeout_or_limit", "memory": "timeout_or_limit", "rows": "timeout_or_limit"}
FAST_SECONDS = 0.5  # about 1 ms on an idle machine, also after a kill


@pytest.fixture(scope="module")
def pool() -> Iterator[WorkerPool]:
    """One service for all cases: what one case leaves behind, the next one meets."""
    with WorkerPool(workers=1) as pool:
        yield pool


class PeakMemory:
    """Most memory (MB) of any worker while the block runs, from /proc; ``idle`` is what the biggest had before."""

    def __init__(self, pool: WorkerPool) -> None:
        self.pool = pool
        self.peak = self.idle = 0.0
        self.done = threading.Event()

    def __enter__(self) -> "PeakMemory":
        for pid in self.pool.pids:
            Path(f"/proc/{pid}/clear_refs").write_text("5")  # forget the peak of the case before
        self.idle = self._look()
        self.thread = threading.Thread(target=self._watch)
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.done.set()
        self.thread.join()

    def _watch(self) -> None:
        while not self.done.wait(0.01):
            self.peak = max(self.peak, self._look())
        self.peak = max(self.peak, self._look())

    def _look(self) -> float:
        return max((peak_mb(pid) for pid in self.pool.pids), default=0.0)


def peak_mb(pid: int) -> float:
    """Highest resident memory of a process; 0 where it has ended."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
    return 0.0


def run(sandbox: Sandbox, sql: str) -> str:
    try:
        sandbox.execute(sql)
    except SqlError as error:
        return OUTCOME.get(error.kind, "error")
    return "ok"


def test_sandbox(case, pool, tmp_path):
    database = tmp_path / "case.sqlite"
    with closing(sqlite3.connect(database)) as connection:
        connection.executescript(case["setup_sql"])
    before = database.read_bytes()
    with Sandbox(database, LIMITS, pool) as sandbox:
        sandbox.execute("SELECT 1")
        with PeakMemory(pool) as memory:
            start = time.monotonic()
            outcome = run(sandbox, case["sql"])
            seconds = time.monotonic() - start
        start = time.monotonic()
        assert sandbox.execute("SELECT 1").rows == [(1,)]
        assert time.monotonic() - start < FAST_SECONDS * patience()
    assert outcome in case["accept"]
    assert seconds <= case["max_seconds"] * patience()
    assert memory.peak - memory.idle <= case["max_extra_mb"]
    if case["db_unchanged"]:
        assert database.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["case.sqlite"]
    for path in case.get("forbid_paths", []):
        assert not Path(path).exists()
