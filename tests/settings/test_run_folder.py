"""A run's folder: when it is taken, when it is another run's, and which checkpoints stay."""

import subprocess
import sys
from pathlib import Path

import pytest

from sqale_grpo.settings.check import ConfigError
from sqale_grpo.settings.keys import Config
from sqale_grpo.settings.load import load_config
from sqale_grpo.settings.run_folder import CONFIG, finish_checkpoint, latest_checkpoint, prepare_folder
from sqale_grpo.settings.seal import COMPLETE, seal
from tests.conftest import ROOT


def checkpoint(folder: Path, number: int, whole: bool = True) -> Path:
    path = folder / f"checkpoint-{number}"
    path.mkdir()
    (path / "model.safetensors").touch()
    if whole:
        seal(path)
    return path


def test_the_newest_whole_one_is_found(tmp_path: Path) -> None:
    assert latest_checkpoint(tmp_path) is None
    checkpoint(tmp_path, 100)
    ninety = checkpoint(tmp_path, 900)
    checkpoint(tmp_path, 1000, whole=False)
    assert latest_checkpoint(tmp_path) == ninety


@pytest.mark.parametrize(("keep", "left"), [(1, {1000}), (2, {900, 1000}), (9, {100, 900, 1000})])
def test_older_ones_and_those_cut_off_go_once_the_new_one_is_whole(tmp_path: Path, keep: int, left: set[int]) -> None:
    for number in (100, 900):
        checkpoint(tmp_path, number)
    checkpoint(tmp_path, 950, whole=False)
    checkpoint(tmp_path, 1100, whole=False)
    finish_checkpoint(checkpoint(tmp_path, 1000, whole=False), keep)
    assert {int(path.name.partition("-")[2]) for path in tmp_path.iterdir()} == left
    assert latest_checkpoint(tmp_path) == tmp_path / "checkpoint-1000"


def test_a_copy_that_someone_keeps_is_left_alone(tmp_path: Path) -> None:
    for name in ("checkpoint-700-best", "checkpoint-old", "checkpoint-"):
        (tmp_path / name).mkdir()
        (tmp_path / name / COMPLETE).touch()
    finish_checkpoint(checkpoint(tmp_path, 20, whole=False), keep=1)
    finish_checkpoint(checkpoint(tmp_path, 100, whole=False), keep=1)
    assert latest_checkpoint(tmp_path) == tmp_path / "checkpoint-100"
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"checkpoint-700-best", "checkpoint-old", "checkpoint-", "checkpoint-100"}


def config(output: Path, *overrides: str) -> Config:
    return load_config([], [f"output={output}", *overrides])


def test_a_folder_is_taken_once_an_update_was_played(tmp_path: Path) -> None:
    assert prepare_folder(config(tmp_path), resume=False) is None
    # A start that failed, for want of a model say, can be repeated with what mends it.
    assert prepare_folder(config(tmp_path, "model.path=other"), resume=False) is None
    assert load_config([tmp_path / "run" / CONFIG]).model.path == "other"
    (tmp_path / "run" / "episodes").mkdir()
    with pytest.raises(ConfigError, match="holds a run already; add --resume"):
        prepare_folder(config(tmp_path), resume=False)


def test_a_resume_wants_a_run_of_the_same_configuration(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no run to resume"):
        prepare_folder(config(tmp_path), resume=True)
    prepare_folder(config(tmp_path), resume=False)
    assert prepare_folder(config(tmp_path), resume=True) is None
    whole = checkpoint(tmp_path / "run", 7)
    assert prepare_folder(config(tmp_path, "train.save_updates=3"), resume=True) == whole
    with pytest.raises(
        ConfigError, match=r"checkpoint-7 belongs to another configuration: train.beta was 0.005, is 0.1"
    ):
        prepare_folder(config(tmp_path, "train.beta=0.1"), resume=True)


def test_a_resume_gives_back_the_room_of_what_was_cut_off(tmp_path: Path) -> None:
    prepare_folder(config(tmp_path), resume=False)
    whole = checkpoint(tmp_path / "run", 7)
    checkpoint(tmp_path / "run", 8, whole=False)
    assert prepare_folder(config(tmp_path), resume=True) == whole
    assert [path.name for path in (tmp_path / "run").glob("checkpoint-*")] == ["checkpoint-7"]


def test_one_process_of_a_launch_writes_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    assert prepare_folder(config(tmp_path), resume=False) is None
    assert not (tmp_path / "run").exists()
    monkeypatch.setenv("RANK", "0")
    prepare_folder(config(tmp_path), resume=False)
    monkeypatch.setenv("RANK", "1")
    assert prepare_folder(config(tmp_path), resume=False) is None  # what the first one has written is no other run


def test_two_runs_do_not_write_one_folder(tmp_path: Path) -> None:
    program = "\n".join(
        [
            "import os, sys",
            "from sqale_grpo.settings.load import load_config",
            "from sqale_grpo.settings.run_folder import prepare_folder",
            "prepare_folder(load_config([], [f'output={sys.argv[1]}']), resume=False)",
            "if not os.fork():",
            "    os.read(0, 1)",  # as a forked worker that outlives a killed run
            "    os._exit(0)",
            "print('holds', flush=True)",
            "input()",
        ]
    )
    other = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert other.stdout is not None and other.stdin is not None and other.stdout.readline() == b"holds\n"
    for resume in (False, True):
        with pytest.raises(
            ConfigError, match=r"another process \(\d+ on .*\) holds .*; wait for it or end it, or set another name="
        ):
            prepare_folder(config(tmp_path, "train.save_updates=3"), resume)
    assert load_config([tmp_path / "run" / CONFIG]).train.save_updates != 3, "the other run's configuration stays"
    other.kill()
    other.wait()
    assert prepare_folder(config(tmp_path), resume=True) is None, "a kill gives the folder back"
    other.stdin.close()
    other.stdout.close()
