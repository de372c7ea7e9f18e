"""Breaks inside a run: no checkpoint holds what broke, the sentence names it, and ``train.heal`` goes on without it."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from sqale_grpo.env.errors import UserError
from sqale_grpo.report.folders import healed_breaks
from sqale_grpo.rollout.chat import chat_frame
from sqale_grpo.rollout.http import ServerError
from sqale_grpo.rollout.lockstep import play
from sqale_grpo.rollout.requests import EngineLost
from sqale_grpo.rollout.tokens import NoProbability
from sqale_grpo.settings.load import load_words
from sqale_grpo.settings.run_folder import latest_checkpoint
from sqale_grpo.train.breaks import (
    Heals,
    NotFinite,
    RunBreak,
    as_break,
    can_start_again,
    check_gradient,
    check_restart,
)
from sqale_grpo.train.plan import learning_rate
from sqale_grpo.train.run import run
from sqale_grpo.train.trainer import SqlGRPOTrainer
from tests.conftest import ROOT
from tests.helpers import faulty
from tests.helpers.launch import ENVIRONMENT, SECONDS, start_torchrun
from tests.helpers.runs import SHORT, arguments, metrics

WORDS = [*SHORT, "train.updates=4", "train.beta=0"]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_gradient_that_is_no_number_ends_the_run_before_its_step(
    quick: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: float
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(SqlGRPOTrainer, "_compute_loss", faulty.healthy)  # put back after the test
    trainers, sampler = [], SqlGRPOTrainer._get_train_sampler
    monkeypatch.setattr(
        SqlGRPOTrainer, "_get_train_sampler", lambda self, *a: trainers.append(self) or sampler(self, *a)
    )
    faulty.break_at({1}, value)
    words = [*quick, "name=broken", f"output={tmp_path}", "train.beta=0", "train.updates=3", "train.save_updates=1"]
    says = r"^update 1: the gradient is no number \(norm (nan|inf); the loss of pass 1 of 1 is -?(nan|inf)"
    with pytest.raises(RunBreak, match=says):
        run(load_words(words))
    trainer = trainers[0]
    assert all(torch.isfinite(parameter).all() for parameter in trainer.model.parameters())
    assert [path.name for path in tmp_path.glob("broken/checkpoint-*")] == ["checkpoint-1"]
    saved = load_file(tmp_path / "broken" / "checkpoint-1" / "model.safetensors")
    assert all(torch.isfinite(value).all() for value in saved.values())


def test_a_policy_with_a_weight_that_is_no_number_is_not_saved(
    quick: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    save = SqlGRPOTrainer._save_checkpoint

    def spoiled(self, *rest):
        with torch.no_grad():
            next(iter(self.model.parameters())).view(-1)[3] = float("nan")
        save(self, *rest)

    monkeypatch.setattr(SqlGRPOTrainer, "_save_checkpoint", spoiled)
    with pytest.raises(RunBreak, match=r"^update 1: the weight model.* is no number: nothing is saved"):
        run(load_words([*quick, "name=spoiled", f"output={tmp_path}"]))
    assert latest_checkpoint(tmp_path / "spoiled") is None and not list(tmp_path.glob("spoiled/checkpoint-*"))


def test_a_policy_that_computes_no_numbers_plays_no_episode(random_policy, tokenizer, shop_database, pool) -> None:
    from sqale_grpo.env.episode import Episode, EpisodeLimits
    from sqale_grpo.env.sandbox import Sandbox
    from sqale_grpo.settings.sampling import Sampling

    weight = random_policy.lm_head.weight
    kept = weight.detach().clone()
    with torch.no_grad():
        weight.fill_(float("nan"))
    try:
        with Sandbox(shop_database) as sandbox, pytest.raises(NoProbability, match="has the log-probability nan"):
            play(random_policy, chat_frame(tokenizer), [Episode("?", sandbox, EpisodeLimits())], [1], Sampling(), pool)
    finally:
        with torch.no_grad():
            weight.copy_(kept)


@pytest.mark.parametrize(
    ("error", "numbers"),
    [
        (NoProbability("token 3 has the log-probability nan"), True),
        (NotFinite("the gradient is no number"), True),
        (EngineLost("vLLM ended"), False),
        (ServerError("no answer"), False),
        (torch.OutOfMemoryError("Tried to allocate 2 GiB"), False),
    ],
)
def test_what_ends_a_run_is_told_with_its_update(error: Exception, numbers: bool) -> None:
    broken = as_break(error, 17)
    assert broken is not None and broken.numbers == numbers and broken.exit_status == 1
    assert str(broken).startswith("update 17: ") and str(error) in str(broken) and "\n" not in str(broken)


def test_every_other_error_stays_what_it_is() -> None:
    assert as_break(ValueError("a fault of the project"), 3) is None


@pytest.mark.parametrize("norm", [float("nan"), float("inf"), -1.0])  # -1: how DeepSpeed says it
def test_a_norm_that_is_none_is_told(norm: float) -> None:
    losses = [torch.tensor(1.0), torch.tensor(float("inf"))]
    with pytest.raises(NotFinite, match=f"norm {norm}; the loss of pass 2 of 2 is inf"):
        check_gradient(norm, losses)
    check_gradient(0.0, losses[:1])


def faulty_run(updates: str, words: list[str], **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.helpers.faulty", updates, *words]
    settings = {**os.environ, **ENVIRONMENT, **environment}
    return subprocess.run(command, cwd=ROOT, env=settings, capture_output=True, text=True, timeout=SECONDS)


def check_healed(folder: Path, words: list[str]) -> None:
    """The run ended, without update 2, and all else is where it would be."""
    (record,) = (folder / "breaks").iterdir()
    told = json.loads(record.read_text())
    assert (record.name, told["update"], told["left_out"], told["checkpoint"]) == ("0.json", 2, True, "checkpoint-2")
    assert "the gradient is no number" in told["what"]
    lines, config = metrics(folder), load_words(words)
    assert [line["update"] for line in lines] == [0, 1, 3]
    assert lines[-1]["learning_rate"] == pytest.approx(learning_rate(config, 3))
    assert not (folder / "episodes" / "000002.parquet").exists()
    last = latest_checkpoint(folder)
    assert last is not None and last.name == "checkpoint-4"
    weights = [load_file(folder / f"checkpoint-{number}" / "model.safetensors") for number in (2, 3)]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0]), "nothing was learned of it"


def test_a_launcher_that_starts_again_after_no_break_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_restart(tmp_path)
    assert can_start_again()
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "0")
    check_restart(tmp_path)
    assert not can_start_again(), "its launcher has no start left"
    monkeypatch.setenv("TORCHELASTIC_MAX_RESTARTS", "1")
    assert can_start_again()
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    assert not can_start_again()
    with pytest.raises(UserError, match="started again after what was no break of the run"):
        check_restart(tmp_path)
    assert Heals.of_run(tmp_path).heal(RunBreak(3, "no number", numbers=True), 1, "checkpoint-2")
    check_restart(tmp_path)
    assert healed_breaks(tmp_path) == ["update 3 broke (no number): back to checkpoint-2; the update was left out"]


@pytest.mark.long
def test_a_run_heals_once_and_says_so(work: Path) -> None:
    words = arguments(work, "heals", *WORDS, "train.heal=1")
    done = faulty_run("2", words)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "update 2: the gradient is no number" in done.stderr
    assert "the run goes back to checkpoint-2, and leaves update 2 out (train.heal=1)" in done.stderr
    assert "left out after a break: updates 2" in done.stdout
    check_healed(work / "runs" / "heals", words)
    # A second break is one too many: the same sentence, and the run's own end.
    more = [*words, "--resume"]
    shutil.rmtree(work / "runs" / "heals" / "checkpoint-4")
    done = faulty_run("3", more)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert done.stderr.splitlines()[-1].startswith("error: update 3: the gradient is no number")
    assert len(list((work / "runs" / "heals" / "breaks").iterdir())) == 1


@pytest.mark.long
def test_without_the_key_a_break_ends_the_run(work: Path) -> None:
    done = faulty_run("0", arguments(work, "ends", *WORDS))
    assert done.returncode == 1 and done.stderr.splitlines()[-1].startswith("error: update 0: the gradient is no")
    assert not (work / "runs" / "ends" / "breaks").exists()


@pytest.mark.slow
def test_a_launch_of_two_processes_heals_where_one_breaks(work: Path) -> None:
    words, log = arguments(work, "two-heal", *WORDS, "train.heal=1"), work / "two-heal.log"
    launch = start_torchrun(2, ["2", *words], log, module="tests.helpers.faulty", restarts=1)
    status, said = launch.wait(SECONDS), log.read_text()
    assert status == 0, "\n".join(line for line in said.splitlines() if "rror" in line)[-6000:]
    check_healed(work / "runs" / "two-heal", words)
