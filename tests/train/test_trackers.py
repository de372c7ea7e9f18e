"""Trackers that really run, offline: metrics, the configuration, whole episodes, and one run across a resume."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sqale_grpo.rollout.record import read_episodes
from sqale_grpo.settings.keys import Config, TrainConfig
from sqale_grpo.train.trackers import COLUMNS, SHOWN, continue_run, episode_rows
from tests.conftest import ROOT

UPDATES = 5
# A run that Ctrl-C ends after its second update, and its resume from the first. In a process of its own: trackio
# decides at import where its files go.
PROGRAM = """
import json, os, shutil, signal, sys, threading, time
import wandb
from trackio.sqlite_storage import SQLiteStorage
from sqale_grpo.settings.load import load_words
from sqale_grpo.settings.run_folder import run_folder
from sqale_grpo.train.progress import logged_updates
from sqale_grpo.train.run import run
config = load_words(sys.argv[1:])
folder = run_folder(config)

def interrupt():
    while logged_updates(folder) < 2:
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGINT)

threading.Thread(target=interrupt, daemon=True).start()
try:
    run(config)
except KeyboardInterrupt:
    print("interrupted")
wandb.finish()
for late in folder.glob("checkpoint-[2-9]"):
    shutil.rmtree(late)
run(config, resume=True)
wandb.finish()
print(json.dumps(SQLiteStorage.get_logs("sqale-grpo", config.name)))
print(json.dumps(SQLiteStorage.get_run_config("sqale-grpo", config.name)))
"""


@pytest.mark.long
def test_both_trackers_get_metrics_configuration_and_episodes_and_a_resume_repeats_none(tmp_path, quick):
    """Ctrl-C in the third update or later, resume after the first: the second is played twice and sent once."""
    pytest.importorskip("wandb")
    pytest.importorskip("trackio")
    words = [*quick, "name=tracked", f"output={tmp_path}", "train.log_to=[wandb,trackio]", "train.save_updates=1"]
    words += ["evaluate.every=1", "evaluate.questions=2", "evaluate.schema=gold", "evaluate.max_turn_tokens=8"]
    offline = {"WANDB_MODE": "offline", "WANDB_SILENT": "true", "TRACKIO_DIR": str(tmp_path / "trackio")}
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("WANDB_", "TRACKIO_"))}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *words, "train.log_episodes_updates=1", f"train.updates={UPDATES}"],
        cwd=ROOT,
        env=kept | offline,
        capture_output=True,
        text=True,
        timeout=1_500,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    assert "interrupted" in done.stdout.splitlines()
    folder = tmp_path / "tracked"
    episodes = {(e["update"], e["question"]) for e in read_episodes(folder / "episodes").to_pylist()}
    # W&B: two offline parts of one run.
    parts = sorted((folder / "wandb").glob("offline-run-*"))
    assert len(parts) == 2
    assert {part.name.rpartition("-")[2] for part in parts} == {(folder / "wandb_run_id").read_text()}
    for part in parts:
        sent = next(part.glob("*.wandb")).read_bytes()
        assert all(name in sent for name in (b"equivalent_rate", b"train/anchored", b"recipe/train.anchor_updates"))
    tables = [json.loads(path.read_text()) for path in (folder / "wandb").glob("offline-run-*/files/**/*.table.json")]
    assert len(tables) == UPDATES and all(table["columns"] == list(COLUMNS) for table in tables)
    assert {(row[0], row[1]) for table in tables for row in table["data"]} == episodes
    # trackio: one run, of the same name.
    logs, keys = (json.loads(line) for line in done.stdout.splitlines()[-2:])
    steps = [log["train/global_step"] for log in logs if "train/equivalent_rate" in log]
    assert steps == list(range(1, UPDATES + 1))
    assert keys["recipe/train.loss_constant"] == 128
    held_out = [log["train/global_step"] for log in logs if "eval/equivalent_low" in log]
    assert sorted(set(held_out)) == list(range(UPDATES + 1)) and len(held_out) - len(set(held_out)) <= 1, (
        "once each, but for one that was sent before its update's own metrics were"
    )
    rows = [row for log in logs if "episodes" in log for row in log["episodes"]["_value"]]
    assert {(row["update"], row["question"]) for row in rows} == episodes
    assert all(row["episode"].startswith("[turn 1] ") for row in rows)
    # Our own file holds each update once too, those of the run that went on.
    assert [json.loads(line)["update"] for line in (folder / "metrics.jsonl").read_text().splitlines()] == list(
        range(UPDATES)
    )


def record(number: int, tier: str) -> dict:
    call = {"completion": ' {"tool": "list_tables"} ', "calls": [], "observation": "Tool result:\na, b\n"}
    last = {"completion": "SELECT 1", "calls": [], "observation": None}
    return {
        "question": f"question {number}",
        "gold_sql": "SELECT 2",
        "sql": "SELECT 1" if tier != "invalid" else None,
        "tier": tier,
        "error": "no answer" if tier == "invalid" else None,
        "reward": 1.0,
        "advantage": -0.5,
        "ended_by": "submit_sql",
        "turns": [call, last],
        "gated": number % 2 == 0,
        "tables": ["a", "b"],
        "bucket": "short",
    }


def test_a_table_shows_every_tier_and_reads_as_a_dialogue():
    records = [record(n, "executable") for n in range(30)] + [record(30, "invalid"), record(31, "equivalent")]
    rows = episode_rows(records, 42, 7)
    assert rows == episode_rows(records, 42, 7) and rows != episode_rows(records, 42, 8)
    assert len(rows) == SHOWN and all(len(row) == len(COLUMNS) for row in rows)
    shown = [dict(zip(COLUMNS, row, strict=True)) for row in rows]
    assert {row["tier"] for row in shown} == {"executable", "equivalent", "invalid: no answer"}
    assert len({row["question"] for row in shown}) == SHOWN
    assert shown[0]["episode"] == '[turn 1] {"tool": "list_tables"}\n\nTool result:\na, b\n\n[turn 2] SELECT 1'


def test_the_id_that_an_agent_gives_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    config = Config(train=TrainConfig(log_to=["wandb"]))
    monkeypatch.setenv("WANDB_RUN_ID", "abc123")
    for name in ("WANDB_RESUME", "WANDB_DIR"):
        monkeypatch.delenv(name, raising=False)
    continue_run(config, tmp_path)
    monkeypatch.delenv("WANDB_RUN_ID")
    continue_run(config, tmp_path)
    assert os.environ["WANDB_RUN_ID"] == "abc123" and os.environ["WANDB_RESUME"] == "allow"
    assert os.environ["WANDB_DIR"] == str(tmp_path)
    (tmp_path / "other").mkdir()
    monkeypatch.delenv("WANDB_RUN_ID")
    continue_run(Config(), tmp_path / "other")
    assert "WANDB_RUN_ID" not in os.environ and not list((tmp_path / "other").iterdir())
