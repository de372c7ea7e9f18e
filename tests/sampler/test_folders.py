"""Episode databases leave nothing behind: not on closing, not at exit, not after a kill."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from sqale_grpo.sampler import open_episode_database
from sqale_grpo.sampler.folders import memory_root, scratch_folder
from tests.conftest import ROOT
from tests.helpers.databases import write_database

# Opens one database by each way under the roots given, reports the folders, then waits or ends.
PROGRAM = """
import sys
from pathlib import Path
from sqale_grpo.sampler.folders import scratch_folder
folder = scratch_folder(Path(sys.argv[1]))
(folder / "0.sqlite").write_bytes(b"rows")
print(folder, flush=True)
sys.stdin.read()
"""


def start(root: Path) -> tuple[subprocess.Popen[str], Path]:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(root)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert process.stdout
    folder = Path(process.stdout.readline().strip())
    assert (folder / "0.sqlite").exists()
    return process, folder


def test_closing_removes_the_database(zoo: Path) -> None:
    for small_bytes in (2**40, 0):
        with open_episode_database(zoo, ["book"], small_bytes) as database:
            folder = database.path.parent
            assert database.path.exists()
        database.close()
        assert not [path for path in folder.iterdir() if path.name.startswith(database.path.name)]


def test_a_failed_build_leaves_nothing(zoo: Path) -> None:
    folder = scratch_folder(memory_root(0))
    before = set(folder.iterdir())
    for small_bytes in (2**40, 0):
        with pytest.raises(ValueError, match="no table"):
            open_episode_database(zoo, ["ghost"], small_bytes)
    assert set(folder.iterdir()) == before


def test_an_ended_process_removes_its_folder(tmp_path: Path) -> None:
    process, _ = start(tmp_path)
    process.communicate("")
    assert process.returncode == 0
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_process_left_is_removed_by_the_next(tmp_path: Path) -> None:
    killed, left = start(tmp_path)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    assert left.exists()
    alive, kept = start(tmp_path)
    assert not left.exists()
    other, third = start(tmp_path)
    assert kept.exists()  # its owner lives
    for process in (alive, other):
        process.communicate("")
    assert list(tmp_path.iterdir()) == []
    assert third != kept


def test_little_memory_means_the_disk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert memory_root(2**60) == tmp_path


@pytest.mark.full
def test_forked_children_build_while_threads_of_the_parent_do(tmp_path: Path) -> None:
    """No lock of SQLite or of ours is held in this process while a database is built: none is inherited."""
    source = write_database(tmp_path / "s.sqlite", "CREATE TABLE t(a); INSERT INTO t VALUES(1)")
    stop, failed = threading.Event(), []

    def build() -> None:
        while not stop.is_set():
            try:
                open_episode_database(source, ["t"]).close()
            except Exception as error:
                failed.append(error)

    threads = [threading.Thread(target=build) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(8):
            child = os.fork()
            if not child:
                signal.alarm(60)  # a child that waits for ever ends by it
                try:
                    with open_episode_database(source, ["t"]) as built:
                        os._exit(0 if built.path.exists() else 1)
                finally:
                    os._exit(2)
            assert os.waitpid(child, 0)[1] == 0
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not failed
