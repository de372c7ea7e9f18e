"""A whole sweep with real training runs: the comparison, and what a second start does."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.train.sweep.test_file import sweep_file
from train.sweep.comparison import cells, compare, markdown, means
from train.sweep.file import read_sweep


def sweep(*words: str) -> subprocess.CompletedProcess[str]:
    program = [sys.executable, "scripts/sweep.py", *words]
    return subprocess.run(program, cwd=ROOT, capture_output=True, text=True, timeout=300)


def test_runs_train_a_failed_one_is_no_figure_and_a_second_start_mends_it(tmp_path, quick, monkeypatch):
    """Three runs of which one cannot train: its corpus is too small for its batch."""
    monkeypatch.chdir(ROOT)
    parameters = {"seed": {"values": [1, 2, 3]}, "corpus.prepared": {"value": str(tmp_path / "prepared${seed}")}}
    path = sweep_file(tmp_path, parameters)
    shared = next(word for word in quick if word.startswith("corpus.prepared=")).partition("=")[2]
    words = [word for word in quick[1:] if not word.startswith(("output", "corpus.prepared"))] + [
        f"output={tmp_path}/runs"
    ]
    Path(shared).mkdir(exist_ok=True)
    for seed in (1, 2):
        (tmp_path / f"prepared{seed}").symlink_to(shared)
    (tmp_path / "prepared3").write_text("a file where the prepared corpora should be")
    first = sweep(str(path), "--jobs", "2", *words)
    assert first.returncode == 1, first.stdout + first.stderr
    runs = read_sweep(path, words)
    records = compare(runs)
    assert [record["state"] for record in records] == ["finished", "finished", "failed"]
    assert "training" not in records[2] and records[2]["error"].startswith("exit status")
    assert "1 of 3 runs failed" in first.stdout and f"seed3: {records[2]['error']}\n" in first.stdout
    lines = [
        json.loads(line) for line in (tmp_path / "runs" / "sweep-sweep" / "comparison.jsonl").read_text().splitlines()
    ]
    assert lines[:3] == records and (lines[3]["runs"], lines[3]["finished"]) == (3, 2)
    expected = sum(record["training"]["reward"] for record in records[:2]) / 2
    assert lines[3]["mean"]["training reward"] == pytest.approx(expected)
    table = (tmp_path / "runs" / "sweep-sweep" / "comparison.md").read_text()
    assert table == markdown(records) and "2 of 3 runs" in table
    # The cause is mended: the finished runs are left alone, the failed one is run.
    marks = [run.folder / "checkpoint-2" / "complete" for run in runs[:2]]
    before = [mark.stat().st_mtime_ns for mark in marks]
    (tmp_path / "prepared3").unlink()
    (tmp_path / "prepared3").symlink_to(shared)
    again = sweep(str(path), *words)
    assert again.returncode == 0, again.stdout + again.stderr
    assert [record["state"] for record in compare(runs)] == ["finished"] * 3
    assert before == [mark.stat().st_mtime_ns for mark in marks]
    # A run whose folder is another configuration's is refused in a sentence.
    other = sweep(str(path), *words, "train.beta=0.3")
    assert other.returncode == 2 and "train.beta was 0.005, is 0.3" in other.stderr


def record(seed: int, corpus: str, state: str, value: float) -> dict:
    found = {"name": f"{corpus}-seed{seed}", "parameters": {"config": f"configs/{corpus}.yaml", "seed": seed}}
    found |= {
        "state": state,
        "updates": 3,
        "max_steps": 4,
        "error": "exit status 2: error: a|b" if state == "failed" else "",
    }
    if state == "finished":
        training = {"reward": value, "equivalent_rate": value, "invalid_rate": 0.0, "rounds": 2.0, "tool_calls": 3.0}
        found |= {"training": training, "evaluations": {"full": {"equivalent": value / 2, "table_recall": None}}}
    return found


def test_means_are_over_the_finished_seeds_of_one_combination():
    records = [record(1, "a", "finished", 0.2), record(2, "a", "failed", 9.0), record(3, "a", "finished", 0.4)]
    records += [record(1, "b", "finished", 0.6), record(2, "b", "unfinished", 9.0), record(1, "c", "failed", 9.0)]
    rows = means(records)
    assert [(row["parameters"]["config"], row["finished"], row["runs"]) for row in rows] == [
        ("configs/a.yaml", 2, 3),
        ("configs/b.yaml", 1, 2),
    ]
    assert rows[0]["mean"]["full equivalent"] == pytest.approx(0.15)
    assert rows[0]["range"]["training reward"] == [0.2, 0.4]
    headings, shown = cells(records)
    assert headings[-1] == "full" and shown[0][-1] == "10.0%" and shown[1][-1] == "–"
    assert shown[1][1] == "failed at update 3" and shown[4][1] == "at 3 of 4"
    assert shown[6][:2] == ["mean of a", "2 of 3 runs"]
    table, said = markdown(records).split("\n\n")
    assert all(line.count("|") == len(headings) + 1 for line in table.splitlines())
    assert said == "- a-seed2: exit status 2: error: a|b\n- c-seed1: exit status 2: error: a|b\n"
