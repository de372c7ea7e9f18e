"""A disk that is full, or must not be written: one sentence, no ruins, and the run goes on once there is room.

The limit on a file's size (RLIMIT_FSIZE) stands for a full disk where a real one cannot be had: torch, safetensors and
pyarrow meet a write that the system refuses. Where /dev/full exists, the errors themselves are looked at too.
"""

import errno
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import save_file

from sqale_grpo.settings.run_folder import latest_checkpoint
from sqale_grpo.train.breaks import NoRoom, writing
from tests.conftest import ROOT
from tests.helpers.launch import ENVIRONMENT, SECONDS
from tests.helpers.runs import SHORT, arguments

SMALL = 2**16  # bytes that a file may have: the configuration fits, the weights do not


def refused(path: Path) -> OSError:
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))


@pytest.mark.parametrize(
    ("write", "says"),
    [
        (lambda path: torch.save({"a": torch.zeros(10**5)}, path / "a.pt"), "file write failed|PytorchStreamWriter"),
        (lambda path: save_file({"a": torch.zeros(10**5)}, path / "a.safetensors"), "File too large|os error"),
        (lambda path: pq.write_table(pa.table({"a": os.urandom(10**6).hex()}), path / "a.parquet"), "File too large"),
    ],
    ids=["torch", "safetensors", "pyarrow"],
)
def test_what_libraries_raise_where_a_write_is_refused(tmp_path: Path, write: Any, says: str) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (SMALL, before[1]))
    try:
        with pytest.raises(NoRoom) as error, writing(tmp_path / "checkpoint-5"):
            write(tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    text = str(error.value)
    assert f"{tmp_path / 'checkpoint-5'} cannot be written (" in text and "--resume" in text and "\n" not in text


def test_other_errors_stay_what_they_are(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="a fault"), writing(tmp_path / "x"):
        raise ValueError("a fault of the project")
    with pytest.raises(NoRoom, match="No space left on device"), writing(tmp_path / "x"):
        raise RuntimeError("while saving") from refused(tmp_path)


PROGRAM = """
import resource, signal, sys
from sqale_grpo.commands import main
from sqale_grpo.train.trainer import SqlGRPOTrainer
save = SqlGRPOTrainer._save_checkpoint
def limited(self, *rest):
    if self.state.global_step == 2:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (2**16, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
    save(self, *rest)
SqlGRPOTrainer._save_checkpoint = limited
sys.exit(main(["train", *sys.argv[1:]]))
"""


@pytest.mark.slow
def test_a_run_whose_disk_fills_goes_on_when_there_is_room(work: Path) -> None:
    words = arguments(work, "full", *SHORT, "train.updates=3")
    settings: dict[str, Any] = {"cwd": ROOT, "env": {**os.environ, **ENVIRONMENT}, "capture_output": True, "text": True}
    done = subprocess.run([sys.executable, "-c", PROGRAM, *words], timeout=SECONDS, **settings)
    folder = work / "runs" / "full"
    assert done.returncode == 1, done.stderr[-3000:]
    said = done.stderr.splitlines()[-1]
    assert said.startswith("error: ") and f"{folder / 'checkpoint-2'} cannot be written" in said
    assert [path.name for path in folder.glob("checkpoint-*")] == ["checkpoint-1"], "what there was of it is gone"
    again = [sys.executable, "-m", "sqale_grpo.train", *words, "--resume"]
    done = subprocess.run(again, timeout=SECONDS, **settings)
    assert done.returncode == 0, done.stderr[-3000:]
    last = latest_checkpoint(folder)
    assert last is not None and last.name == "checkpoint-3"
    readable = {oct(file.stat().st_mode & 0o044) for file in last.rglob("*") if file.is_file()}
    assert readable == {oct(0o044 & ~_umask())}, "as the umask says, whatever library wrote them"


def _umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anything")
def test_a_folder_that_must_not_be_written_is_one_sentence(work: Path, tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    words = [*arguments(work, "locked", *SHORT), f"output={tmp_path}"]
    done = subprocess.run(
        [sys.executable, "-m", "sqale_grpo.train", *words],
        cwd=ROOT,
        env={**os.environ, **ENVIRONMENT},
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert done.returncode == 2 and done.stderr.splitlines()[-1].startswith("error: ") and str(tmp_path) in done.stderr
