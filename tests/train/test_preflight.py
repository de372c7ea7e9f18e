"""The preflight: on a machine where all is right the table says so, and every fault is told with its mend."""

import json
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from packaging.version import Version
from rich.console import Console

from sqale_grpo.corpus import prepare
from sqale_grpo.settings.load import load_config, load_words
from sqale_grpo.settings.run_folder import CONFIG
from sqale_grpo.train.experiment import make_experiment
from sqale_grpo.train.importance import MEAN_OF_ABSOLUTE, effective_share
from sqale_grpo.train.preflight.draws import digests, golds_run
from sqale_grpo.train.preflight.engine import Differences, effective, parity, turns_cut, weights_arrive
from sqale_grpo.train.preflight.kernels import kernel_gradients, kernels_there, rules
from sqale_grpo.train.preflight.machine import disk, processes
from sqale_grpo.train.preflight.memory import longest_pass
from sqale_grpo.train.preflight.run import all_checks
from sqale_grpo.train.preflight.table import CheckRow, PreflightFailed, decide, failed, made, right, show, worst
from sqale_grpo.train.run import run
from tests.conftest import ROOT
from tests.helpers.launch import SECONDS, start_torchrun
from tests.helpers.programs import program
from tests.helpers.runs import SHORT, arguments
from tests.helpers.second_engine import beside

main = program("train")
ROWS = [
    *("processes", "disk", "kernels", "kernel gradients", "draws", "gold queries", "engine and trainer"),
    *("effective share", "weights arrive", "turns cut", "memory"),
]


@pytest.fixture(scope="module")
def trainer(quick: list[str], tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A real trainer with its optimizer, after an update; the demo's policy, which has learned something to forget."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        words = [*quick, "name=preflight", f"output={tmp_path_factory.mktemp('preflight')}", "train.updates=1"]
        return run(load_words([*words, "model.path=demo", "rollout.max_turn_tokens=96"])).trainer


@pytest.mark.long
def test_the_command_prints_its_table_and_leaves_a_folder_to_start_in(
    quick: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("COLUMNS", "200")
    words = [*quick, "name=first", f"output={tmp_path}"]
    assert main([*words, "--preflight"]) == 0
    shown = capsys.readouterr().out
    for row in ROWS:
        assert row in shown
    assert "the preflight found nothing wrong" in shown and "failed" not in shown
    assert not (tmp_path / "first" / "episodes").exists() and not list(tmp_path.glob("first/checkpoint-*"))
    assert main(words) == 0, "the same words start the run"


@pytest.mark.long
def test_every_check_is_made_with_an_engine_of_its_own(trainer: Any, tmp_path: Path) -> None:
    weights = [value.detach().clone() for value in trainer.model.parameters()]
    with beside(trainer) as engine:
        results = all_checks(trainer, tmp_path, alone=False)
    assert [each.name for each in results] == ROWS
    states = {each.name: each.state for each in results}
    assert {name for name, state in states.items() if state != "right"} <= {"kernels", "memory", "turns cut"}, results
    assert engine.reused > 100, "the second time the prompts were in its cache"
    assert all(torch.equal(now, was) for now, was in zip(trainer.model.parameters(), weights, strict=True))
    decide(results)
    console = Console(record=True, width=200)
    show(results, console, "preflight")
    assert "weights arrive" in console.export_text()


@pytest.mark.parametrize(
    ("fault", "row", "says", "mend"),
    [
        ("wrong", "engine and trainer", "mean difference", "other weights"),
        ("deaf", "weights arrive", "moved the trainer by", "weights do not reach the engine"),
        ("stale", "weights arrive", "moved the trainer by", "keeps what it had computed with older ones"),
        ("nan", "engine and trainer", "has the log-probability nan", "the check itself ended"),
        ("refuses", "engine and trainer", "did not empty its prefix cache", "the check itself ended"),
    ],
)
def test_a_broken_engine_is_told(trainer: Any, fault: str, row: str, says: str, mend: str) -> None:
    checks = {"engine and trainer": lambda: parity(trainer)[0], "weights arrive": lambda: weights_arrive(trainer)}
    weights = [value.detach().clone() for value in trainer.model.parameters()]
    with beside(trainer, fault):
        found = made(row, checks[row])
    assert found.state == "failed" and says in found.found and mend in found.mend, found
    assert all(torch.equal(now, was) for now, was in zip(trainer.model.parameters(), weights, strict=True))
    with pytest.raises(PreflightFailed, match=f"the preflight failed at {row}: "):
        decide([found])


def test_a_difference_that_grows_from_turn_to_turn_is_a_state_bug(trainer: Any, monkeypatch: Any) -> None:
    growing = Differences(tuple(((1e-5,) * 9, (2e-5,) * 9, (9e-4,) * 9) for _ in range(4)))
    monkeypatch.setattr("sqale_grpo.train.preflight.engine.differences", lambda *_: growing)
    found, _ = parity(trainer)
    assert found.state == "failed" and "grows from turn to turn" in found.found and "state bug" in found.mend


def test_turns_that_never_end_are_warned_of(trainer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert turns_cut(trainer).state == "right"
    short = replace(trainer.experiment, sampling=replace(trainer.experiment.sampling, max_turn_tokens=3))
    monkeypatch.setattr(trainer, "experiment", short)
    found = turns_cut(trainer)
    assert found.state == "warned" and found.found.startswith("8 of 8 first turns end at 3 tokens")


def test_a_full_gpu_is_told_with_what_to_lower(trainer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert longest_pass(trainer).state == "right"

    def full(*_: Any, **__: Any) -> None:
        raise torch.OutOfMemoryError("Tried to allocate 2.00 GiB")

    monkeypatch.setattr(trainer.accelerator, "backward", full)
    found = longest_pass(trainer)
    assert found.state == "failed" and "Tried to allocate 2.00 GiB" in found.found
    assert "rollout.vllm_memory_share" in found.mend


# The machine


def test_a_disk_too_small_is_told_with_what_is_wanted(tmp_path: Path) -> None:
    found = disk(tmp_path, checkpoint=34 * 2**30 * 1_000, kept=2)
    assert (
        found.state == "failed" and "more wanted: 3 checkpoints of 34,000.0" in found.found and "output=" in found.mend
    )
    assert disk(tmp_path, checkpoint=34 * 2**30 * 1_000, kept=2, assumed=True).state == "warned"
    found = disk(tmp_path, checkpoint=2**20, kept=2, probe=2**24)
    assert found.state == "right" and "MiB/s" in found.found and not list(tmp_path.iterdir())


def test_a_disk_too_slow_is_warned_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sqale_grpo.train.preflight.machine._written_seconds", lambda folder, size: size / 2**20)
    found = disk(tmp_path, checkpoint=2**30, kept=1)
    assert found.state == "warned" and "1,024 s a checkpoint" in found.found


@pytest.mark.parametrize(
    ("environment", "visible", "state", "says"),
    [
        ({}, 1, "right", "a GPU each"),
        ({}, 8, "failed", "1, and 8 GPUs visible"),
        ({}, 0, "failed", "1 on this machine, 0 GPUs visible"),
        ({"WORLD_SIZE": "8"}, 8, "failed", "8 announced (WORLD_SIZE), 1 connected"),
    ],
)
def test_processes_are_held_against_gpus(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], visible: int, state: str, says: str
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    found = processes(use_cpu=False, visible=visible)
    assert found.state == state and says in found.found
    assert processes(use_cpu=True).state == ("right" if not environment else "failed")


# Kernels


@pytest.mark.parametrize(
    ("fla", "conv", "state", "says"),
    [
        (None, "1.7.0", "failed", "flash-linear-attention not installed"),
        (None, None, "failed", "flash-linear-attention and causal-conv1d not installed"),
        ("0.4.2", "1.7.0", "failed", "flash-linear-attention 0.4.2: wrong gradients on Hopper"),
        # Here no such package is installed: it is as one that does not fit the Triton that is there.
        ("0.6.0", "1.7.0", "failed", "flash-linear-attention is installed and cannot be imported"),
    ],
)
def test_missing_and_old_kernels_are_told(random_policy: Any, fla: str | None, conv: str | None, state, says) -> None:
    found = {"flash-linear-attention": fla and Version(fla), "causal-conv1d": conv and Version(conv)}
    told = kernels_there(random_policy, True, found)
    assert told.state == state and says in told.found
    assert "--no-build-isolation" in told.mend
    assert kernels_there(random_policy, False).state == "not made"


def test_a_kernel_with_a_wrong_gradient_is_told(random_policy: Any) -> None:
    """As of flash-linear-attention 0.4 on Hopper: the output is right, the gradients of g and beta are not."""
    _, plain = rules()

    def wrong(q, k, v, g, beta, **more):
        g, beta = (0.7 * each + 0.3 * each.detach() for each in (g, beta))
        return plain(q, k, v, g=g, beta=beta, **more)

    assert kernel_gradients(random_policy, torch.device("cpu")).state == "right"
    told = kernel_gradients(random_policy, torch.device("cpu"), wrong)
    assert told.state == "failed" and "dg 3.0e-01, dbeta 3.0e-01" in told.found
    nothing = kernel_gradients(
        random_policy, torch.device("cpu"), lambda *a, **k: (plain(*a, **k)[0] * float("nan"), 0)
    )
    assert nothing.state == "failed"


# What is drawn


def test_golds_that_do_not_run_are_named(tokenizer: Any, tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "shop.sqlite") as connection:
        connection.execute("CREATE TABLE shops (id INTEGER PRIMARY KEY, city TEXT)")
    connection.close()
    sql = "SELECT count(city) FROM shops WHERE id > {}"
    rows = [{"db_id": "shop", "question_id": f"q{n}", "question": f"In {n}?", "sql": sql.format(n)} for n in range(30)]
    lines = [json.dumps(row) for row in rows]
    (tmp_path / "questions.jsonl").write_text("\n".join(lines))
    corpus = prepare("jsonl", tmp_path, tmp_path / "prepared", progress=False)
    config = load_config([], ["corpus.name=jsonl", "train.questions_per_update=4", "train.candidates=2"])
    experiment = make_experiment(config, tmp_path, corpus, list(range(len(corpus))), tokenizer)
    assert golds_run(experiment, 0, 3, 0, 1).found == "all of 12 run, of updates 0 to 2"
    with sqlite3.connect(corpus.database("shop")) as connection:
        connection.execute("ALTER TABLE shops RENAME COLUMN city TO town")
    connection.close()
    found = [golds_run(experiment, 0, 3, process, 2) for process in range(2)]
    assert all(each.state == "failed" and "6 of 6 do not run" in each.found for each in found), found
    assert "of update 0" in found[0].found and "and 3 more" in found[0].found


def test_the_digest_of_an_update_changes_with_all_that_it_holds(trainer: Any) -> None:
    experiment = trainer.experiment
    mine = digests(experiment, 0)
    assert mine == digests(experiment, 0)
    assert digests(experiment, 1)["update"] != mine["update"]
    other = replace(experiment, config=replace(experiment.config, seed=5))
    assert digests(other, 0)["update"] != mine["update"]


@pytest.mark.slow
@pytest.mark.parametrize(("module", "status"), [("sqale_grpo.train", 0), ("tests.helpers.unequal", 1)])
def test_two_processes_that_draw_unequally_do_not_start(work: Path, module: str, status: int) -> None:
    name = f"unequal-{status}"
    words, log = [*arguments(work, name, *SHORT), "--preflight"], work / f"{name}.log"
    launch = start_torchrun(2, words, log, module=module, COLUMNS="200")
    ended, said = launch.wait(SECONDS), log.read_text()
    assert (ended != 0) == (status != 0), said[-6000:]
    wanted = "the processes differ in update" if status else "the preflight found nothing wrong"
    assert wanted in said, said[-6000:]
    assert (work / "runs" / name / CONFIG).exists() and not (work / "runs" / name / "episodes").exists()


# The table


def test_a_check_that_others_wait_in_ends_its_process() -> None:
    def check() -> CheckRow:
        raise ValueError("no\nnumber")

    assert made("draws", check).state == "failed"
    with pytest.raises(PreflightFailed, match="the preflight ended at draws: ValueError: no"):
        made("draws", check, alone=False)


def test_the_gravest_of_all_processes_is_told_with_its_number() -> None:
    fine, bad = right("disk", "fine"), failed("disk", "full", "buy one")
    assert worst([fine, fine]).found == "fine"
    assert worst([fine, bad, fine]).found == "process 1: full"
    assert worst([CheckRow("disk", "not made", "process 0 looks"), fine]).found == "fine"
    with pytest.raises(PreflightFailed, match=r"failed at disk: full; buy one \(and 1 more in the table\)"):
        decide([bad, fine, bad])


# The effective share of a long episode


@pytest.mark.parametrize(
    ("gap", "tokens", "share"), [(0.012, 100, 0.98), (0.012, 3_000, 0.62), (0.018, 3_000, 0.48), (0.025, 6_000, 0.20)]
)
def test_the_share_that_is_left_is_that_of_draws(gap: float, tokens: int, share: float) -> None:
    """400,000 draws of normal differences a token, cut at 3, gave these."""
    variance = tokens * (gap / MEAN_OF_ABSOLUTE) ** 2
    assert effective_share(variance, 3.0) == pytest.approx(share, abs=0.02)
    draws = torch.randn(400_000, generator=torch.Generator().manual_seed(1)).double() * variance**0.5 - variance / 2
    for masked in (False, True):
        weights = draws.exp()
        weights = torch.where(weights > 3, 0.0, weights) if masked else weights.clamp(max=3)
        drawn = (weights.sum() ** 2 / (weights**2).sum() / len(weights)).item()
        assert effective_share(variance, 3.0, masked) == pytest.approx(drawn, rel=0.02)


def test_a_share_under_a_half_is_warned_of(trainer: Any) -> None:
    assert effective(trainer, 0.0).state == "right" and effective_share(0.0, 3.0) == 1.0
    assert effective_share(1e5, 3.0) == 0.0 and effective_share(499.0, 3.0) < 1e-9
    told = effective(trainer, (0.03 / MEAN_OF_ABSOLUTE) ** 2)
    assert told.state == "warned" and "train.importance_level=token" in told.mend
