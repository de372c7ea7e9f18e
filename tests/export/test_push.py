"""Pushing: a real HTTP exchange with a small Hub on the loopback device, and what a break or a refusal leaves."""

import os
import shutil
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest
from rich.console import Console

from sqale_grpo.train.push import LOG, PUSHES, CheckpointPush, link_checkpoint
from tests.conftest import ROOT
from tests.export.test_export import make_run
from tests.helpers.checkpoints import tiny_text_only
from tests.helpers.hub import Hub
from tests.helpers.patience import patience

PUSH = (
    "import sys; from pathlib import Path; from sqale_grpo.export.push import push_folder;"
    "push_folder(Path(sys.argv[1]), 'ada/shop', print, dry_run='dry' in sys.argv, private='public' not in sys.argv)"
)


@pytest.fixture
def hub():
    with Hub() as server:
        yield server


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "export"
    (made / "deep").mkdir(parents=True)
    (made / "README.md").write_text("---\nlicense: apache-2.0\n---\n# x\n")
    for number in (1, 2):
        (made / f"model-{number}.safetensors").write_bytes(bytes([number]) * 3_000)
    (made / "deep" / "b.json").write_text("{}")
    return made


def environment(hub, tmp_path):
    own = {"HF_ENDPOINT": hub.url, "HF_HUB_DISABLE_XET": "1", "HF_HUB_OFFLINE": "0", "HF_TOKEN": "hf_test"}
    return {**os.environ, **own, "HF_HOME": str(tmp_path / "hf"), "PYTHONPATH": str(ROOT), "NO_PROXY": "127.0.0.1"}


def push(hub, folder, tmp_path, *flags):
    command = [sys.executable, "-c", PUSH, str(folder), *flags]
    return subprocess.run(
        command, env=environment(hub, tmp_path), cwd=tmp_path, capture_output=True, text=True, timeout=300
    )


def contents(folder):
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_a_push_sends_every_file_to_a_private_repository(hub, folder, tmp_path):
    done = push(hub, folder, tmp_path)
    assert done.returncode == 0, done.stderr
    assert hub.files == contents(folder) and hub.repos == {"ada/shop": True}
    assert hub.commits == ["Export of a trained checkpoint"] and "pushed to ada/shop" in done.stdout
    assert sorted(path.name for path in folder.iterdir()) == sorted({*(p.split("/")[0] for p in contents(folder))})


def test_a_dry_run_says_what_it_would_send_and_sends_nothing(hub, folder, tmp_path):
    done = push(hub, folder, tmp_path, "dry")
    assert done.returncode == 0 and "would upload 4 files" in done.stdout and "private" in done.stdout
    assert all(name in done.stdout for name in contents(folder))
    assert not hub.repos and not hub.files and not hub.sent


def test_a_push_that_broke_goes_on_where_it_stopped(hub, folder, tmp_path):
    hub.break_after = 1
    broken = push(hub, folder, tmp_path)
    assert broken.returncode == 1 and "ada/shop was not pushed" in broken.stderr
    assert len(hub.sent) == 1 and not hub.commits
    hub.break_after = None
    assert push(hub, folder, tmp_path).returncode == 0
    assert hub.files == contents(folder)
    assert len(hub.sent) == len(set(hub.sent)) == 2, "what had arrived is not sent again"


def test_a_refusal_is_one_sentence(hub, folder, tmp_path):
    hub.refuse = 403
    done = push(hub, folder, tmp_path, "public")
    assert "ada/shop was not pushed" in done.stderr.splitlines()[-1]


def test_no_connection_is_one_sentence_and_shows_no_token(hub, folder, tmp_path):
    hub.server_close()
    done = push(hub, folder, tmp_path)
    assert done.returncode == 1 and "ConfigError: ada/shop was not pushed" in done.stderr.splitlines()[-1]
    assert "hf_test" not in done.stdout + done.stderr


# Beside a run


@pytest.fixture
def checkpoint(tmp_path):
    made = tmp_path / "run" / "checkpoint-4"
    made.mkdir(parents=True)
    for name in ("model.safetensors", "config.json", "optimizer.pt"):
        (made / name).write_text(name)
    return made


def test_links_outlive_the_checkpoint_and_leave_the_optimizer_out(checkpoint):
    linked = link_checkpoint(checkpoint, checkpoint.parent / "pushing-4")
    assert (linked / "model.safetensors").stat().st_ino == (checkpoint / "model.safetensors").stat().st_ino
    for file in checkpoint.iterdir():
        file.unlink()
    assert contents(linked) == {"model.safetensors": b"model.safetensors", "config.json": b"config.json"}


def callback(folder, console, wait=900.0):
    return CheckpointPush(folder, 2, "ada/shop", console, wait)


def moment(step, last=10):
    return SimpleNamespace(global_step=step, max_steps=last, is_world_process_zero=True)


def test_a_push_that_fails_is_one_line_and_the_run_goes_on(checkpoint, tmp_path):
    """The folder is no run, so the export in the other process fails."""
    with (tmp_path / "out.txt").open("w") as out:
        pushing = callback(checkpoint.parent, Console(file=out, width=500))
        arguments = SimpleNamespace(output_dir=str(checkpoint.parent))
        started = time.monotonic()
        pushing.on_save(arguments, moment(3), None)
        pushing.on_save(arguments, moment(4), None)
        assert time.monotonic() - started < 5.0 * patience(), "the run does not wait"
        pushing.on_save(arguments, moment(4), None)  # one push at a time
        pushing.on_train_end(arguments, moment(10), None)
    lines = (tmp_path / "out.txt").read_text().splitlines()
    assert lines[0] == "pushing update 4 to ada/shop"
    assert lines[1] == "update 4 is not pushed: update 4 is still on its way"
    assert lines[-1].startswith("warning: update 4 was not pushed: error: ") and "belongs to no run" in lines[-1]
    assert {path.name for path in checkpoint.parent.iterdir()} == {"checkpoint-4", PUSHES}


@pytest.mark.long
def test_a_checkpoint_is_exported_and_pushed_beside_the_run(hub, tmp_path, monkeypatch):
    """The checkpoint goes while it is pushed, as rotation would have it; nothing of the push stays in the folder."""
    _, checkpoint = make_run(tmp_path / "run", tiny_text_only(tmp_path / "base"))
    tiny_text_only(checkpoint, seed=6)
    for name, value in environment(hub, tmp_path).items():
        monkeypatch.setenv(name, value)
    before = {path.name for path in (tmp_path / "run").iterdir()}
    with (tmp_path / "out.txt").open("w") as out:
        pushing = callback(tmp_path / "run", Console(file=out, width=500))
        pushing.on_save(SimpleNamespace(output_dir=str(tmp_path / "run")), moment(12, 12), None)
        shutil.rmtree(checkpoint)
        pushing.on_train_end(None, moment(12, 12), None)
    log = (tmp_path / "run" / PUSHES / LOG).read_text()
    assert (tmp_path / "out.txt").read_text().splitlines()[-1] == "update 12 is pushed", log
    assert {"README.md", "model.safetensors", "sqale_agent.py", "tokenizer.json", "LICENSE"} <= set(hub.files)
    assert hub.commits == ["Update 12"] and hub.repos == {"ada/shop": True}
    assert {path.name for path in (tmp_path / "run").iterdir()} == before - {"checkpoint-12"} | {PUSHES}
    assert [path.name for path in (tmp_path / "run" / PUSHES).iterdir()] == [LOG]


def test_a_checkpoint_that_is_gone_is_one_line_too(tmp_path):
    with (tmp_path / "out.txt").open("w") as out:
        callback(tmp_path, Console(file=out)).on_save(SimpleNamespace(output_dir=str(tmp_path)), moment(4), None)
    assert (tmp_path / "out.txt").read_text().startswith("warning: update 4 was not pushed: ")
