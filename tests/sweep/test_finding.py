"""The finding's program: what is wrong is one sentence; a kill loses nothing; how many run at once changes nothing."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from scripts import finding
from sqale_grpo.env.program import run_program
from tests.conftest import ROOT

TINY = [
    "train.updates=2",
    "train.questions_per_update=2",
    "train.candidates=2",
    "train.micro_batch=2",
    "train.save_updates=1",
    "env.tool_turns=2",
    "rollout.max_turn_tokens=24",
    "evaluate.questions=4",
    "evaluate.max_turn_tokens=24",
    "corpus.demo_schemas=[3,2]",
    "corpus.demo_questions=[6,3]",
]


def sweep_file(path: Path, corpora: list[str], seeds: list[int]) -> Path:
    sweep = yaml.safe_load((ROOT / finding.SWEEP).read_text())
    sweep["parameters"] = {"config": {"values": corpora}, "seed": {"values": seeds}}
    path.write_text(yaml.safe_dump(sweep))
    return path


def says(capsys, *words: str) -> str:
    assert run_program(lambda: finding.main([str(word) for word in words])) == 2
    return capsys.readouterr().err


@pytest.fixture(autouse=True)
def from_the_root(monkeypatch):
    monkeypatch.chdir(ROOT)


def test_an_unknown_corpus_is_one_sentence(tmp_path, capsys):
    sweep = sweep_file(tmp_path / "s.yaml", ["configs/corpus/demo_huge.yaml"], [1])
    text = says(capsys, "--sweep", sweep, f"output={tmp_path}")
    assert text.startswith("error: ") and text.count("\n") == 1
    assert "demo_huge.yaml" in text


def test_a_missing_base_policy_is_one_sentence(tmp_path, capsys):
    sweep = sweep_file(tmp_path / "s.yaml", ["configs/corpus/demo_small.yaml"], [1])
    text = says(capsys, "--sweep", sweep, f"output={tmp_path}", f"model.path={tmp_path}/nowhere")
    assert text.startswith("error: ") and text.count("\n") == 1
    assert "nowhere" in text


def test_a_folder_of_another_configuration_is_one_sentence(tmp_path, capsys):
    sweep = sweep_file(tmp_path / "s.yaml", ["configs/corpus/demo_small.yaml"], [1])
    folder = tmp_path / "demo_small-seed1"
    folder.mkdir()
    (folder / "config.yaml").write_text("name: demo_small-seed1\ntrain:\n  learning_rate: 0.5\n")
    text = says(capsys, "--sweep", sweep, f"output={tmp_path}")
    assert text.startswith("error: ") and text.count("\n") == 1
    assert str(folder) in text and "train.learning_rate" in text


def test_a_page_without_a_place_for_the_results_is_refused_before_anything_runs(tmp_path, capsys):
    page = tmp_path / "page.md"
    page.write_text("# Mine\n")
    text = says(capsys, "--page", page, f"output={tmp_path / 'runs'}")
    assert "no place for the results" in text
    assert not (tmp_path / "runs").exists()


def test_a_page_that_cannot_be_written_is_refused_before_anything_runs(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    text = says(capsys, "--page", tmp_path / "file" / "page.md", f"output={tmp_path / 'runs'}")
    assert text.startswith("error: --page cannot be written: ") and text.count("\n") == 1
    assert not (tmp_path / "runs").exists()


def test_evaluations_of_another_base_policy_are_refused_before_training(tmp_path, capsys, random_policy, tokenizer):
    policy = tmp_path / "policy"
    random_policy.save_pretrained(policy)
    tokenizer.save_pretrained(policy)
    folder = tmp_path / "runs" / "base" / "evaluations" / "gold"
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text("model: another/policy\n")
    (folder / "summary.json").write_text("{}")  # it was played: one that was only begun hinders nothing
    sweep = sweep_file(tmp_path / "s.yaml", ["configs/corpus/demo_small.yaml"], [1])
    text = says(capsys, "--sweep", sweep, f"output={tmp_path / 'runs'}", f"model.path={policy}")
    assert str(folder) in text and "'another/policy'" in text
    assert not (tmp_path / "runs" / "demo_small-seed1").exists()


def start(place: Path, policy: Path, jobs: int) -> subprocess.Popen:
    place.mkdir(exist_ok=True)
    corpora = ["configs/corpus/demo_large.yaml", "configs/corpus/demo_small.yaml"]
    sweep = sweep_file(place / "demo.yaml", corpora, [1, 2])
    words = [f"output={place / 'runs'}", f"model.path={policy}", f"corpus.prepared={place.parent / 'prepared'}", *TINY]
    program = ["scripts/finding.py", "--sweep", sweep, "--jobs", jobs, "--page", place / "docs" / "finding.md", *words]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.Popen([sys.executable, *map(str, program)], cwd=ROOT, env=environment, start_new_session=True)


def until(condition, seconds: float, process: subprocess.Popen) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, "it ended before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_kill_ends_a_sweep_that_a_shell_put_into_the_background(tmp_path, number):
    """A shell starts such a process with Ctrl-C ignored."""
    sweep = sweep_file(tmp_path / "demo.yaml", ["configs/corpus/demo_small.yaml"], [1])
    words = [
        "-m",
        "sqale_grpo.sweep",
        str(sweep),
        f"output={tmp_path / 'runs'}",
        f"corpus.prepared={tmp_path / 'prepared'}",
    ]
    process = subprocess.Popen(
        [sys.executable, *words],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
    )
    until((tmp_path / "runs" / "demo_small-seed1" / "sweep.log").exists, 120, process)
    time.sleep(0.5)
    process.send_signal(number)
    assert process.wait(60) == 130
    assert process.stderr is not None and "stopped; the same command goes on" in process.stderr.read()


@pytest.mark.slow
def test_a_killed_finding_ends_with_the_same_tables_and_two_at_once_give_the_figures_of_one(
    tmp_path, random_policy, tokenizer
):
    """Killed -9 in the sweep and in the evaluations, two at once, against one that was never stopped, one by one."""
    policy = tmp_path / "policy"
    random_policy.save_pretrained(policy)
    tokenizer.save_pretrained(policy)
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert start(whole, policy, jobs=1).wait(900) == 0
    for mark in ("runs/demo_large-seed2/checkpoint-1/complete", "runs/base/evaluations/distractors-32/config.yaml"):
        process = start(killed, policy, jobs=2)
        until((killed / mark).exists, 600, process)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        assert not (killed / "docs" / "finding.md").exists()
        time.sleep(3)  # its children end with it
    assert start(killed, policy, jobs=2).wait(900) == 0
    for name in ("finding.jsonl", "images/finding_accuracy.svg", "images/finding_recall.svg"):
        assert (killed / "docs" / name).read_bytes() == (whole / "docs" / name).read_bytes(), name
    ours, theirs = (
        (place / "docs" / "finding.md").read_text().replace(str(place), "PLACE") for place in (killed, whole)
    )
    assert ours == theirs
    for run in ("demo_large-seed1", "demo_large-seed2"):
        assert figures(whole / "runs" / run) == figures(killed / "runs" / run)
    assert figures(whole / "runs" / "demo_large-seed1") != figures(whole / "runs" / "demo_large-seed2")
    # A run that fails afterwards is shown, and in no mean.
    shutil.rmtree(whole / "runs" / "demo_large-seed2")
    (whole / "runs" / "demo_large-seed2").mkdir()
    (whole / "runs" / "demo_large-seed2" / "episodes").mkdir()  # of a run whose configuration is gone: refused
    assert start(whole, policy, jobs=1).wait(300) == 1
    page = (whole / "docs" / "finding.md").read_text()
    assert "| demo_large-seed2 | failed: exit status 2: error: " in page and "†" in page


def figures(folder: Path) -> list[dict]:
    """A run's metrics without what a clock says."""
    lines = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    return [{k: v for k, v in line.items() if not k.startswith("seconds/") and k != "step_time"} for line in lines]
