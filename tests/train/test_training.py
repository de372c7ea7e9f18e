"""Training runs of a few updates with everything real: policy, databases, TRL, checkpoints, kill -9 and resume."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests.conftest import ROOT
from train.episode_log import read_episodes

UPDATES = 4
# Warm-started just enough to write calls, many of which parse: rewards differ within a group, so gradients are not 0.
SMALL = [
    "policy.careful_traces=150",
    "policy.clean_max_steps=160",
    "policy.imperfect_traces=60",
    "policy.imperfect_steps=30",
    "policy.copy_max_steps=150",
    "policy.head_dim=64",
    "policy.floor=0",
    "rollout.temperature=0.7",
    "train.questions_per_update=3",
    "train.candidates=4",
    "train.micro_batch=4",
    f"train.max_steps={UPDATES}",
    "train.save_updates=1",
    "train.keep_checkpoints=10",
    "train.anchor_updates=2",
    "train.beta=0.1",
    "curriculum.warmup_updates=1",
    "curriculum.ramp_updates=2",
    "curriculum.gate_updates=3",
    "rollout.max_episode_tokens=700",
]


def command(work: Path, name: str, *more: str) -> list[str]:
    places = [f"name={name}", f"output={work / 'runs'}", f"corpus.prepared={work / 'prepared'}"]
    return [sys.executable, "-m", "train", "configs/demo.yaml", *places, *SMALL, *more]


def train(work: Path, name: str, *more: str) -> Path:
    done = subprocess.run(command(work, name, *more), cwd=ROOT, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return work / "runs" / name


def metrics(folder: Path) -> list[dict]:
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    timed = ("seconds/", "step_time")
    return [{key: value for key, value in line.items() if not key.startswith(timed)} for line in lines]


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("training")


@pytest.fixture(scope="module")
def whole(work: Path) -> Path:
    """The run that was never stopped."""
    return train(work, "whole")


def test_rewards_differ_and_weights_move(whole):
    assert all(line["grad_norm"] > 0 and line["reward_std"] > 0 for line in metrics(whole))
    first, last = (load_file(whole / f"checkpoint-{n}" / "model.safetensors") for n in (1, UPDATES))
    assert any(not torch.equal(first[name], last[name]) for name in first)


def test_the_trainer_and_the_sampler_agree_on_every_token(whole):
    assert all(line["sampling/logp_difference"] < 1e-5 for line in metrics(whole))


def test_every_episode_is_recorded_with_its_advantage(whole):
    rows = read_episodes(whole / "episodes").to_pylist()
    assert len(rows) == UPDATES * 3 * 4
    for start in range(0, len(rows), 4):
        group = rows[start : start + 4]
        assert len({row["question_id"] for row in group}) == 1
        assert [row["candidate"] for row in group] == [0, 1, 2, 3]
        mean = sum(row["reward"] for row in group) / 4
        for row in group:
            assert row["advantage"] == pytest.approx(row["reward"] - mean, abs=1e-5)
            assert row["turns"] and row["ended_by"] and set(row["gold_tables"]) <= set(row["tables"])
    # Gates: all closed in update 0, none from update 3 on.
    assert all(row["gated"] for row in rows[:12]) and not any(row["gated"] for row in rows[36:])
    assert {row["bucket"] for row in rows[:12]} == {"short"}


def test_the_logged_rates_are_those_of_the_record(whole):
    rows = read_episodes(whole / "episodes").to_pylist()
    for update, line in enumerate(metrics(whole)):
        own = [row for row in rows if row["update"] == update]
        for tier in ("equivalent", "executable", "parsable", "invalid"):
            assert line[f"{tier}_rate"] == sum(row["tier"] == tier for row in own) / len(own)
        assert line["reward"] == pytest.approx(sum(row["reward"] for row in own) / len(own), abs=1e-5)


def test_the_reference_is_the_policy_of_the_last_anchor(whole):
    for checkpoint, anchor in ((2, 2), (3, 2), (4, 4)):
        reference = load_file(whole / f"checkpoint-{checkpoint}" / "reference.safetensors")
        policy = load_file(whole / f"checkpoint-{anchor}" / "model.safetensors")
        assert reference.keys() == policy.keys()
        assert all(torch.equal(reference[name], policy[name]) for name in policy)
    # Right after an anchor, policy and reference are one: no divergence to pay for.
    assert metrics(whole)[2]["kl"] == pytest.approx(0.0, abs=1e-6)
    assert metrics(whole)[3]["kl"] > 0.0


def test_a_killed_run_resumes_as_if_it_had_not_stopped(whole, work):
    log = work / "killed.log"
    with log.open("w") as out:
        process = subprocess.Popen(
            command(work, "killed"), cwd=ROOT, stdout=out, stderr=out, start_new_session=True, env=os.environ
        )
        lines = work / "runs" / "killed" / "metrics.jsonl"
        stop_after = random.SystemRandom().randint(1, UPDATES - 1)
        deadline = time.monotonic() + 300
        while not lines.exists() or len(lines.read_text().splitlines()) < stop_after:
            assert process.poll() is None and time.monotonic() < deadline, log.read_text()[-4000:]
            time.sleep(0.02)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    resumed = train(work, "killed", "--resume")
    assert metrics(resumed) == metrics(whole), f"killed after update {stop_after - 1}"
    theirs, ours = (read_episodes(folder / "episodes").to_pylist() for folder in (whole, resumed))
    assert ours == theirs
    for name in ("model.safetensors", "reference.safetensors"):
        a, b = (load_file(folder / f"checkpoint-{UPDATES}" / name) for folder in (whole, resumed))
        assert all(torch.equal(a[key], b[key]) for key in a)


def test_a_checkpoint_that_was_cut_off_is_passed_over(whole):
    from train.folder import latest_checkpoint

    assert latest_checkpoint(whole).name == f"checkpoint-{UPDATES}"
    (whole / f"checkpoint-{UPDATES}" / "complete").unlink()
    assert latest_checkpoint(whole).name == f"checkpoint-{UPDATES - 1}"
    (whole / f"checkpoint-{UPDATES}" / "complete").touch()


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (("name=whole",), "add --resume"),
        (("name=nowhere", "--resume"), "no run to resume"),
        (("name=whole", "--resume", "train.beta=0.2"), "train.beta was 0.1, is 0.2"),
        (("name=few", "corpus.limit=2"), "questions"),
    ],
)
def test_a_run_that_cannot_start_says_why_in_one_sentence(whole, work, more, says):
    done = subprocess.run(command(work, "x", *more), cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert says in done.stderr
