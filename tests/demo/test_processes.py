"""The demo on two processes: both play, one keeps the files, and one that ends early is a sentence."""

import json
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from sqale_grpo.demo import processes
from sqale_grpo.evaluate.runner import Share, shared_chunks
from sqale_grpo.settings.check import ConfigError
from sqale_grpo.settings.run_folder import latest_checkpoint
from tests.conftest import ROOT
from tests.helpers.patience import running, wait_until


@pytest.mark.long
def test_a_whole_demo_on_two_processes(quick, work):
    words = [*quick, "evaluate.questions=5", "train.save_updates=2", "name=pair", "seed=3"]
    command = [sys.executable, "-m", "sqale_grpo.demo", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr[-3000:]
    folder = next(work.parent.glob("*/runs/pair-seed3"))
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["before"]["n"] == summary["after"]["n"] == 5
    for name in ("before", "after"):
        files = sorted((folder / "evaluations" / name / "episodes").glob("*.parquet"))
        played = [pq.read_table(path, columns=["index"]).column(0).to_pylist() for path in files]
        assert sorted(map(len, played)) == [2, 3] and len({index for part in played for index in part}) == 5
    checkpoint = latest_checkpoint(folder)
    assert checkpoint is not None
    assert json.loads((checkpoint / "launch.json").read_text())["processes"] == 2
    # A finished one is left alone, and the same command plays nothing of an unfinished one twice.
    (folder / "summary.json").unlink()
    again = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=500)
    assert again.returncode == 0 and again.stdout.count("is finished") == 2, again.stderr[-3000:]
    after = json.loads((folder / "summary.json").read_text())["after"]
    assert after == summary["after"]


def test_a_partner_that_ends_early_is_a_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr(processes, "PARTNER", "sqale_grpo.demo.there_is_no_such_module")
    log = tmp_path / "partner.log"
    with (
        pytest.raises(processes.PartnerError, match="ended early; what it said is in"),
        processes.partners(2, tmp_path / "config.yaml", False, log),
    ):
        raise AssertionError("nobody joined")
    assert "there_is_no_such_module" in log.read_text()


@pytest.mark.long
def test_a_partner_ends_with_a_main_process_that_is_killed(quick):
    """One that went on alone would write into the run that the next command takes up."""
    command = [sys.executable, "-m", "sqale_grpo.demo", *quick, "name=killed", "seed=4"]
    demo = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    children = Path(f"/proc/{demo.pid}/task/{demo.pid}/children")

    def partner() -> int | None:
        for pid in children.read_text().split():
            if b"demo.background" in Path(f"/proc/{pid}/cmdline").read_bytes():
                return int(pid)
        return None

    assert wait_until(lambda: partner() is not None, 200)
    pid = partner()
    demo.kill()
    demo.wait()
    assert wait_until(lambda: not running(pid), 20)


def test_a_number_of_processes_that_cannot_share_a_batch_is_refused(tmp_path):
    from sqale_grpo.demo.command import main

    with pytest.raises(ConfigError, match="do not divide by 5 processes"):
        main(["configs/demo.yaml", f"output={tmp_path}", "--processes", "5"])


@pytest.mark.parametrize(
    ("questions", "most", "count"), [(200, 128, 2), (5, 128, 2), (300, 64, 3), (1, 8, 2), (7, 2, 1)]
)
def test_every_question_is_played_once(questions, most, count):
    shares = [shared_chunks(range(questions), most, Share(rank, count)) for rank in range(count)]
    chunks = [chunk for share in shares for chunk in share]
    assert len({number for number, _ in chunks}) == len(chunks)
    assert sorted(index for _, chunk in chunks for index in chunk) == list(range(questions))
    assert max(len(chunk) for _, chunk in chunks) <= most
