"""A whole sweep with real training runs: the comparison, and what a second start does."""

import io
import json
import shutil
import subprocess
import sys

import pytest
from rich.console import Console

from sqale_grpo.sweep.command import tell
from sqale_grpo.sweep.comparison import cells, compare, failures, markdown, means, rich_table
from sqale_grpo.sweep.file import read_sweep
from tests.conftest import ROOT
from tests.sweep.test_file import sweep_file


def sweep(*words: str) -> subprocess.CompletedProcess[str]:
    program = [sys.executable, "-m", "sqale_grpo.sweep", *words]
    return subprocess.run(program, cwd=ROOT, capture_output=True, text=True, timeout=300)


@pytest.mark.long
def test_runs_train_a_failed_one_is_no_figure_and_a_second_start_mends_it(tmp_path, quick, monkeypatch):
    """Two runs of which one cannot train: its prompts are missing."""
    monkeypatch.chdir(ROOT)
    parameters = {"seed": {"values": [1, 2]}, "env.prompts": {"value": str(tmp_path / "prompts${seed}.json")}}
    path = sweep_file(tmp_path, parameters)
    words = [word for word in quick[1:] if not word.startswith("output=")] + [f"output={tmp_path}/runs"]
    prompts = ROOT / "configs" / "prompts" / "demo.json"
    shutil.copy(prompts, tmp_path / "prompts1.json")
    first = sweep(str(path), "--jobs", "2", *words)
    assert first.returncode == 1, first.stdout + first.stderr
    runs = read_sweep(path, words)
    records = compare(runs)
    assert [record["state"] for record in records] == ["finished", "failed"]
    assert "training" not in records[1] and records[1]["error"].startswith("exit status 2: error: ")
    assert "1 of 2 runs failed" in first.stdout and f"seed2: {records[1]['error']}\n" in first.stdout
    folder = tmp_path / "runs" / "sweep-sweep"
    lines = [json.loads(line) for line in (folder / "comparison.jsonl").read_text().splitlines()]
    assert lines[:2] == records and (lines[2]["runs"], lines[2]["finished"]) == (2, 1)
    assert lines[2]["mean"]["training reward"] == records[0]["training"]["reward"]
    table = (folder / "comparison.md").read_text()
    assert table == markdown(records) and "1 of 2 runs" in table
    # The cause is mended: the finished run is left alone, the failed one is run.
    mark = runs[0].folder / "checkpoint-2" / "complete"
    before = mark.stat().st_mtime_ns
    shutil.copy(prompts, tmp_path / "prompts2.json")
    again = sweep(str(path), *words)
    assert again.returncode == 0, again.stdout + again.stderr
    assert before == mark.stat().st_mtime_ns
    records = compare(runs)
    assert [record["state"] for record in records] == ["finished"] * 2
    lines = [json.loads(line) for line in (folder / "comparison.jsonl").read_text().splitlines()]
    expected = sum(record["training"]["reward"] for record in records) / 2
    assert lines[2]["mean"]["training reward"] == pytest.approx(expected)
    # A run whose folder is another configuration's is refused in a sentence.
    other = sweep(str(path), *words, "train.beta=0.3")
    assert other.returncode == 2 and "train.beta was 0.005, is 0.3" in other.stderr


def record(seed: int, corpus: str, state: str, value: float) -> dict:
    found = {"name": f"{corpus}-seed{seed}", "parameters": {"config": f"configs/{corpus}.yaml", "seed": seed}}
    found |= {
        "state": state,
        "updates": 3,
        "planned_updates": 4,
        "error": "exit status 2: error: a|b" if state == "failed" else "",
    }
    if state == "finished":
        training = {"reward": value, "equivalent_rate": value, "invalid_rate": 0.0, "rounds": 2.0, "tool_calls": 3.0}
        found |= {"training": training, "evaluations": {"full": {"equivalent": value / 2, "table_recall": None}}}
    return found


def test_the_last_words_of_a_run_are_shown_and_not_obeyed(tmp_path):
    hostile = {**record(1, "a", "failed", 0.0), "name": "\x1b[2J[bold]", "error": "\x1b]0;title\x07"}
    console = Console(file=io.StringIO(), width=120)
    finish_runs = [hostile, record(2, "a", "finished", 0.5)]
    console.print(rich_table(finish_runs, "\x1b[31m"))
    for text in failures(finish_runs):
        tell(console, text)
    shown = console.file.getvalue()
    assert "\x1b" not in shown and "\x07" not in shown
    assert "\\x1b[2J[bold]" in shown and "\\x1b]0;title\\x07" in shown and "\\x1b[31m" in shown


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
