"""Processes of a sweep: how many at once, what a failure leaves, and that none outlives the sweep."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sqale_grpo.settings.keys import Config, TrainConfig
from sqale_grpo.sweep.file import SweepRun
from sqale_grpo.sweep.launch import launch
from sqale_grpo.sweep.state import LOG, standing
from tests.conftest import ROOT

# What a training run leaves behind when it is done, by a shell.
DONE = "mkdir -p {folder}/checkpoint-1 && touch {folder}/checkpoint-1/complete"


def run_of(folder: Path, name: str, script: str) -> SweepRun:
    config = Config(name=name, output=str(folder), train=TrainConfig(updates=1))
    return SweepRun({"name": name}, ("sh", "-c", script.format(folder=folder / name)), config)


def test_no_more_than_asked_run_at_once_and_a_failure_stops_nobody(tmp_path):
    said: list[str] = []
    most = 0

    def tick(running: list[SweepRun]) -> None:
        nonlocal most
        most = max(most, len(running))

    runs = [
        run_of(tmp_path, "a", "sleep 0.5; " + DONE),
        run_of(tmp_path, "b", "echo first; echo error: the reason; exit 3"),
        run_of(tmp_path, "c", "sleep 0.5; " + DONE),
        run_of(tmp_path, "d", "echo over too soon"),
        run_of(tmp_path, "e", "kill -9 $$"),
    ]
    launch(runs, 2, said.append, tick)
    assert most == 2
    assert [standing(run).state for run in runs] == ["finished", "failed", "finished", "failed", "failed"]
    assert standing(runs[1]).error == "exit status 3: error: the reason"
    assert "over too soon" in standing(runs[3]).error
    assert standing(runs[4]).error.startswith("ended by signal 9")
    assert sum("finished" in line for line in said) == 2 and len(said) == 10


def test_a_finished_run_is_left_and_a_failed_one_is_run_again(tmp_path):
    once = "test -e {folder}/../mended || exit 1; echo again >> {folder}/again; " + DONE
    runs = [run_of(tmp_path, "a", "echo ran >> {folder}/ran; " + DONE), run_of(tmp_path, "b", once)]
    launch(runs, 1, lambda text: None)
    assert [standing(run).state for run in runs] == ["finished", "failed"]
    (tmp_path / "mended").touch()
    launch(runs, 1, lambda text: None)
    assert [standing(run).state for run in runs] == ["finished", "finished"]
    assert (tmp_path / "a" / "ran").read_text() == "ran\n" and (tmp_path / "b" / "again").read_text() == "again\n"


DRIVER = """
import signal, sys
from pathlib import Path
from tests.sweep.test_launch import run_of
from sqale_grpo.sweep.launch import launch
signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
script = "echo $$ > {folder}/shell; python3 -c 'import time; time.sleep(300)' & echo $! > {folder}/child; wait"
launch([run_of(Path(sys.argv[1]), name, script) for name in "ab"], 2, print)
"""


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc; the kernel's parent-death signal is Linux's")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_run_outlives_the_sweep(tmp_path, number):
    driver = subprocess.Popen([sys.executable, "-c", DRIVER, str(tmp_path)], cwd=ROOT, stderr=subprocess.DEVNULL)
    names = ("shell", "child")
    files = [tmp_path / run / name for run in "ab" for name in names]
    deadline = time.monotonic() + 60
    while not all(file.exists() and file.read_text().strip() for file in files):
        assert driver.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    pids = {file: int(file.read_text()) for file in files}
    assert all(alive(pid) for pid in pids.values())
    os.kill(driver.pid, number)
    driver.wait(30)
    # Without a last word (kill -9) the kernel ends the run's own process alone; that one ends what it started.
    checked = [pid for file, pid in pids.items() if number != signal.SIGKILL or file.name == "shell"]
    deadline = time.monotonic() + 20
    while any(alive(pid) for pid in checked):
        assert time.monotonic() < deadline, "a run outlives its sweep"
        time.sleep(0.05)
    for pid in pids.values():
        if alive(pid):
            os.kill(pid, signal.SIGKILL)
    assert not any((tmp_path / run / "sweep.failed").exists() for run in "ab"), "stopped is not failed"
    assert (tmp_path / "a" / LOG).exists()
