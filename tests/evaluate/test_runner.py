"""Evaluations end to end: the harness' self-checks, restart after kill -9, refused folders, several candidates."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from rich.console import Console

from sqale_grpo.corpus import PreparedCorpus
from sqale_grpo.evaluate.evaluations import read_evaluation
from sqale_grpo.evaluate.records import read_records, record_files
from sqale_grpo.evaluate.runner import run_evaluation
from sqale_grpo.settings.asked import choose_questions
from sqale_grpo.settings.check import ConfigError
from sqale_grpo.settings.evaluation import EvaluationConfig, load_evaluation
from tests.conftest import ROOT
from tests.helpers.corpora import own_questions
from tests.helpers.programs import program

main = program("evaluate")

DEMO = ROOT / "configs" / "eval" / "demo.yaml"
PROMPTS = ROOT / "configs" / "prompts" / "demo.json"


def evaluation(prepared: Path, *overrides: str) -> EvaluationConfig:
    return load_evaluation([DEMO], [f"corpus.prepared={prepared}", f"env.prompts={PROMPTS}", *overrides])


def summary(folder: Path) -> dict:
    return json.loads((folder / "summary.json").read_text())


def run(config: EvaluationConfig, folder: Path) -> dict:
    run_evaluation(config, folder, Console(quiet=True))
    return summary(folder)


@pytest.mark.long
def test_the_oracle_is_always_right_on_the_demo(demo_split: PreparedCorpus, prepared_folder: Path, tmp_path: Path):
    every = f"questions={len(demo_split)}"
    found = run(evaluation(prepared_folder, "backend=oracle", every), tmp_path / "oracle")
    assert found["equivalent"] == 1.0 and found["unstable"]["n"] == 0 and found["n"] == len(demo_split) >= 200
    assert found["ended_by"] == {"submit_sql": 1.0} and found["reward"] == 3.0
    assert (found["model"], found["benchmark"], found["parameters"]) == ("demo", "demo", None)
    nothing = run(evaluation(prepared_folder, "backend=empty", every), tmp_path / "empty")
    assert nothing["equivalent"] == 0.0 and nothing["invalid"] == 1.0 and nothing["n"] == found["n"]
    no_rows = run(evaluation(prepared_folder, "backend=no_rows", every), tmp_path / "no_rows")
    empty_golds = no_rows["gold_empty"]["n"]
    assert no_rows["equivalent"] * no_rows["n"] == no_rows["gold_empty"]["equivalent"] == empty_golds


def test_the_oracle_is_right_on_copies_too_and_luck_is_not(tmp_path: Path):
    """Nothing is as good as the gold query where that has no rows, except for copies, on which it has some."""
    golds = [
        "SELECT name FROM shop WHERE sales > 1000000",
        "SELECT name FROM shop WHERE sales < 40",
        "SELECT count(*) FROM shop WHERE name = 'nobody'",
    ]
    source = own_questions(tmp_path, golds)
    places = [f"corpus.source={source}", f"corpus.prepared={tmp_path / 'prepared'}", "corpus.name=jsonl"]
    given = [*places, "corpus.split=train", "questions=3", "schema=full", "env.prompts=null"]
    copies = "reward.counter_databases=1"
    oracle = run(load_evaluation([], [*given, copies, "backend=oracle"]), tmp_path / "oracle")
    assert (oracle["equivalent"], oracle["robust"]) == (1.0, 1.0) and oracle["intervals"]["robust"][1] == 1.0
    config = load_evaluation([], [*given, copies, "backend=no_rows"])
    nothing = run(config, tmp_path / "no_rows")
    assert (nothing["equivalent"], nothing["robust"]) == (1 / 3, 0.0)
    (lucky,) = [row for row in read_records(tmp_path / "no_rows") if row["copy"] is not None]
    assert (lucky["tier"], lucky["reward"], lucky["robust"]) == ("equivalent", 3.0, False)
    assert lucky["message"].startswith(f"right by luck: on copy {lucky['copy']} ")
    plain = run(load_evaluation([], [*given, "backend=no_rows"]), tmp_path / "plain")
    assert plain["equivalent"] == 1 / 3 and plain["robust"] is None


@pytest.mark.long
def test_the_oracle_is_right_on_real_questions(shared_data: Path, tmp_path: Path):
    """500 questions as they are kept; those whose gold is unstable stand apart, and are right too except for chance."""
    lines = (shared_data / "questions.jsonl").read_text().splitlines()
    source = tmp_path / "source"
    source.mkdir()
    (source / "databases").symlink_to(shared_data / "databases")
    (source / "questions.jsonl").write_text("\n".join(lines[:: len(lines) // 500][:500]) + "\n")
    places = [f"corpus.source={source}", f"corpus.prepared={tmp_path / 'prepared'}"]
    given = [*places, "corpus.name=jsonl", "corpus.split=train", "questions=500", "schema=full", "env.prompts=null"]
    config = load_evaluation([], [*given, "backend=oracle"])
    found = run(config, tmp_path / "oracle")
    assert found["equivalent"] == 1.0
    assert found["n"] + found["unstable"]["n"] > 490
    no_rows = run(load_evaluation([], [*given, "backend=no_rows"]), tmp_path / "no_rows")
    assert round(no_rows["equivalent"] * no_rows["n"]) == no_rows["gold_empty"]["n"] > 0


def test_questions_are_the_same_for_every_model_and_come_from_the_asked_bands(demo_split: PreparedCorpus):
    chosen = choose_questions(demo_split, 30, 7)
    assert chosen == choose_questions(demo_split, 30, 7) == sorted(set(chosen)) and len(chosen) == 30
    assert chosen != choose_questions(demo_split, 30, 8)
    assert len(choose_questions(demo_split, 10**6, 7)) == len(demo_split)
    bands = demo_split.column("difficulty")
    assert {bands[index] for index in choose_questions(demo_split, 30, 7, ["moderate"])} == {"moderate"}
    with pytest.raises(ConfigError, match="leaves no question of .*; its bands are hard, moderate, simple"):
        choose_questions(demo_split, 30, 7, ["tricky"])


SMALL = ["questions=20", "batch=4", "sampling.max_turn_tokens=16", "sampling.max_episode_tokens=700", "name=small"]


def command(prepared: Path, policy: Path, output: Path) -> list[str]:
    places = [f"corpus.prepared={prepared}", f"model={policy}", f"output={output}", f"env.prompts={PROMPTS}"]
    return [sys.executable, "-m", "sqale_grpo.evaluate", str(DEMO), *SMALL, *places]


@pytest.mark.long
def test_killed_and_started_again_it_gives_the_same_table(
    demo_split: PreparedCorpus, prepared_folder: Path, tiny_policy: Path, tmp_path: Path
):
    whole = run(evaluation(prepared_folder, *SMALL, f"model={tiny_policy}"), tmp_path / "whole")
    stopped = subprocess.Popen(command(prepared_folder, tiny_policy, tmp_path), cwd=ROOT, stdout=subprocess.DEVNULL)
    folder = tmp_path / "small"
    deadline = time.monotonic() + 500
    while len(record_files(folder)) < 2 and time.monotonic() < deadline and stopped.poll() is None:
        time.sleep(0.02)
    os.kill(stopped.pid, signal.SIGKILL)
    stopped.wait()
    before = len(record_files(folder))
    assert 2 <= before < 5 and not (folder / "summary.json").exists()
    kept = [path.read_bytes() for path in record_files(folder)]
    again = run(evaluation(prepared_folder, *SMALL, f"model={tiny_policy}"), folder)
    assert [path.read_bytes() for path in record_files(folder)][:before] == kept, "what is there is not played again"
    assert read_records(folder) == read_records(tmp_path / "whole")
    assert again == whole
    assert any(row["turns"] for row in read_records(folder)) and again["written_tokens"] > 0


def test_a_finished_evaluation_is_left_alone_and_no_model_is_opened(
    demo_split: PreparedCorpus, prepared_folder: Path, tmp_path: Path
):
    config = evaluation(prepared_folder, "backend=oracle", "questions=4", "name=x")
    run(config, tmp_path / "x")
    stamp = (tmp_path / "x" / "summary.json").stat().st_mtime_ns

    def refuse(config: EvaluationConfig):
        raise AssertionError("opened")

    run_evaluation(config, tmp_path / "x", Console(quiet=True), refuse)
    assert (tmp_path / "x" / "summary.json").stat().st_mtime_ns == stamp


def test_a_folder_of_another_configuration_is_refused(
    demo_split: PreparedCorpus, prepared_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    given = [str(DEMO), f"corpus.prepared={prepared_folder}", "backend=oracle", "questions=4", "name=x"]
    given.append(f"output={tmp_path}")
    assert main(given) == 0
    assert main([*given, "env.workers=1"]) == 0, "what it runs on may change"
    capsys.readouterr()
    assert main([*given, "schema=full"]) == 2
    told = capsys.readouterr().err
    assert "x belongs to another configuration: schema was 'sampled', is 'full'" in told and "name=" in told
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").touch()
    assert main([*given[:-2], "name=other", given[-1]]) == 2
    assert "is not empty and holds no evaluation" in capsys.readouterr().err


def test_what_begun_without_an_episode_hinders_nothing(
    demo_split: PreparedCorpus, prepared_folder: Path, tmp_path: Path
):
    """A kill before the configuration was written, and a model that could not be opened."""
    folder = tmp_path / "x"
    folder.mkdir()
    (folder / ".lock").touch()
    (folder / "config.yaml.partial").touch()

    def fail(config: EvaluationConfig):
        raise ConfigError("no such model")

    with pytest.raises(ConfigError, match="no such model"):
        run_evaluation(evaluation(prepared_folder, "questions=4"), folder, Console(quiet=True), fail)
    assert run(evaluation(prepared_folder, "backend=oracle", "questions=4"), folder)["equivalent"] == 1.0


def test_a_finished_evaluation_takes_another_group(demo_split: PreparedCorpus, prepared_folder: Path, tmp_path: Path):
    for group in ("first", "second"):
        run(evaluation(prepared_folder, "backend=oracle", "questions=4", f"group={group}"), tmp_path / "x")
        assert read_evaluation(tmp_path / "x").policy == group


def test_questions_that_all_have_an_unstable_gold_are_refused_before_a_model_is_opened(tmp_path: Path):
    source = own_questions(tmp_path / "source", ["SELECT name FROM City ORDER BY random() LIMIT 1"])
    given = [f"corpus.source={source}", f"corpus.prepared={tmp_path / 'prepared'}", "corpus.name=jsonl"]
    config = load_evaluation([], [*given, "corpus.split=train", "backend=oracle", "name=x"])
    with pytest.raises(ConfigError, match="no question is left to average"):
        run_evaluation(config, tmp_path / "x", Console(quiet=True))


def test_several_candidates_give_pass_at_k(
    demo_split: PreparedCorpus, prepared_folder: Path, tiny_policy: Path, tmp_path: Path
):
    given = ["questions=3", "candidates=4", "batch=8", *SMALL[2:], f"model={tiny_policy}"]
    found = run(evaluation(prepared_folder, *given), tmp_path / "k")
    rows = read_records(tmp_path / "k")
    assert [(row["index"], row["candidate"]) for row in rows] == [
        (index, candidate) for index in choose_questions(demo_split, 3, 1) for candidate in range(4)
    ]
    first = [json.dumps(row["turns"]) for row in rows if row["index"] == rows[0]["index"]]
    assert len(set(first)) > 1, "candidates draw their own tokens"
    assert found["n"] == 3 and found["episodes"] == 12 and "pass@4" in found and "majority@4" in found
    saved = json.loads((tmp_path / "k" / "calibration.json").read_text())
    assert (saved["identity"], saved["candidates"], len(saved["curve"])) == (found["identity"], 4, 4)
    assert found["calibration"]["threshold"] == saved["threshold"]


def test_a_dry_run_says_what_would_happen_and_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    given = [str(DEMO), f"output={tmp_path / 'runs'}", f"corpus.prepared={tmp_path}", "corpus.name=bird"]
    assert main([*given, "--dry-run"]) == 0
    told = capsys.readouterr().out
    assert "sqale-grpo corpus prepare --corpus bird --source PATH --split test" in told
    assert "200 questions x 1 = 200, schema sampled" in told and "(new)" in told
    assert not (tmp_path / "runs").exists()
    assert main([*given]) == 2
    assert "holds no prepared corpus" in capsys.readouterr().err
    assert not any(tmp_path.iterdir()), "it is told before the demo's policy is built"
