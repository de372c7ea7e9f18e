"""Training runs of a few updates with everything real: policy, databases, TRL, checkpoints, kill -9 and resume."""

import json
import random
import shutil
import signal
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from sqale_grpo.settings.load import load_words
from sqale_grpo.settings.run_folder import latest_checkpoint
from sqale_grpo.train.plan import learning_rate
from tests.conftest import ROOT
from tests.helpers.launch import Starter, kill_when
from tests.helpers.programs import program
from tests.helpers.runs import arguments, assert_same_tensors, episodes, metrics, train

main = program("train")

UPDATES = 4
# Counter-databases are on, so that a resume meets them too; choosing them takes a while, so of a few questions.
STEPS = (f"train.updates={UPDATES}", "reward.counter_databases=1", "corpus.limit=120")


@pytest.fixture(scope="module")
def whole(starter: Starter, work: Path) -> Path:
    """The run that was never stopped."""
    return train(starter, work, "whole", *STEPS)


def test_gradients_come_where_rewards_differ_and_weights_move(whole):
    """Which updates these are depends on the tokens that a processor's rounding leads to: one of four, at the least."""
    rows, differing = episodes(whole), 0
    for update, line in enumerate(metrics(whole)):
        own = [row for row in rows if row["update"] == update]
        groups = [{row["reward"] for row in own[start : start + 4]} for start in range(0, len(own), 4)]
        if any(len(rewards) > 1 for rewards in groups):
            differing += 1
            assert line["grad_norm"] > 0 and line["reward_std"] > 0
        else:
            assert not any(row["advantage"] for row in own)
    assert differing
    first, last = (load_file(whole / f"checkpoint-{n}" / "model.safetensors") for n in (1, UPDATES))
    assert any(not torch.equal(first[name], last[name]) for name in first)


def test_the_trainer_and_the_sampler_agree_on_every_token(whole):
    assert all(line["sampling/logp_difference"] < 1e-5 for line in metrics(whole))


def test_every_episode_is_recorded_with_its_advantage(whole):
    rows = episodes(whole)
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
    rows = episodes(whole)
    for update, line in enumerate(metrics(whole)):
        own = [row for row in rows if row["update"] == update]
        for tier in ("equivalent", "executable", "parsable", "invalid"):
            assert line[f"{tier}_rate"] == sum(row["tier"] == tier for row in own) / len(own)
        assert line["reward"] == pytest.approx(sum(row["reward"] for row in own) / len(own), abs=1e-5)
        assert line["lucky_rate"] == sum(row["copy"] is not None for row in own) / len(own)
        assert all(row["tier"] == "executable" and row["message"] for row in own if row["copy"] is not None)


def test_the_reference_is_the_policy_of_the_last_anchor(whole):
    for checkpoint, anchor in ((2, 2), (3, 2), (4, 4)):
        reference = load_file(whole / f"checkpoint-{checkpoint}" / "reference.safetensors")
        policy = load_file(whole / f"checkpoint-{anchor}" / "model.safetensors")
        assert reference.keys() == policy.keys()
        assert all(torch.equal(reference[name], policy[name]) for name in policy)
    # Right after an anchor, policy and reference are one: no divergence to pay for.
    assert metrics(whole)[2]["kl"] == pytest.approx(0.0, abs=1e-6)
    assert metrics(whole)[3]["kl"] > 0.0


@pytest.mark.long
def test_a_run_killed_again_and_again_ends_as_if_it_had_not_been(starter: Starter, work: Path, whole: Path) -> None:
    """Kill -9 at three updates of chance, and once more while a checkpoint is being written."""
    log, folder = work / "killed.log", work / "runs" / "killed"
    chance = random.Random(20)
    kills = sorted(chance.choice(range(1, UPDATES)) for _ in range(3))
    resume: list[str] = []
    for finished in kills:
        run = starter.start(arguments(work, "killed", *STEPS, *resume), log)
        lines = folder / "metrics.jsonl"
        seen = lines.read_text() if lines.exists() else ""
        # As soon as that update's line is there (again): its checkpoint is about to be written, or half written.
        kill_when(run, lambda: lines.exists() and lines.read_text() != seen and count(lines) >= finished, log)  # noqa: B023
        assert starter.wait(run) == -signal.SIGKILL
        resume = ["--resume"]
    before = latest_checkpoint(folder)
    cut = f"checkpoint-{int(before.name.rpartition('-')[2]) + 1 if before else 1}"
    run = starter.start(arguments(work, "killed", *STEPS, *resume), log, kill_at=f"{cut}/trainer_state.json")
    assert starter.wait(run) == -signal.SIGKILL
    assert (folder / cut / "model.safetensors").exists() and (folder / cut / "optimizer.pt").exists()
    assert latest_checkpoint(folder) == before, "the half written one does not count"
    assert train(starter, work, "killed", *STEPS, "--resume") == folder
    assert metrics(folder) == metrics(whole), f"killed after {kills} updates"
    assert episodes(folder) == episodes(whole)
    for name in ("model.safetensors", "reference.safetensors"):
        assert_same_tensors(*(run / f"checkpoint-{UPDATES}" / name for run in (whole, folder)))


def count(lines: Path) -> int:
    return len(lines.read_text().splitlines())


@pytest.mark.slow
def test_a_run_that_is_extended_plays_what_a_longer_one_plays(starter: Starter, work: Path, whole: Path) -> None:
    short = train(starter, work, "extended", *STEPS, "train.updates=2")
    assert train(starter, work, "extended", *STEPS, "--resume") == short
    drawn = ("update", "question_id", "candidate", "question", "tables", "gated", "bucket")
    ours, theirs = (([row[name] for name in drawn] for row in episodes(folder)) for folder in (short, whole))
    assert list(ours) == list(theirs)
    longer = load_words(arguments(work, "extended", *STEPS))
    rates = [line["learning_rate"] for line in metrics(short)]
    assert rates[2:] == pytest.approx([learning_rate(longer, update) for update in (2, 3)])
    assert latest_checkpoint(short) == short / f"checkpoint-{UPDATES}"


@pytest.mark.long
def test_lora_is_anchored_and_resumed_to_the_bit(starter: Starter, work: Path) -> None:
    lora = [*STEPS, "model.lora_rank=4", "train.learning_rate=5e-3"]
    one = train(starter, work, "lora", *lora)
    kls, moved = ([line[key] for line in metrics(one)] for key in ("kl", "grad_norm"))
    assert kls[2] == pytest.approx(0, abs=1e-6), "anchored after 2 updates"
    assert all(kls[update] > 0 for update in (1, 3) if moved[update - 1] > 0), "and nowhere else"
    for number, anchor in ((3, 2), (4, 4)):
        reference = one / f"checkpoint-{number}" / "ref" / "adapter_model.safetensors"
        assert_same_tensors(reference, one / f"checkpoint-{anchor}" / "adapter_model.safetensors")
    moved = load_file(one / "checkpoint-4" / "adapter_model.safetensors")
    assert all("lora_" in name for name in moved) and any(value.abs().sum() > 0 for value in moved.values())
    log = work / "lora2.log"
    run = starter.start(arguments(work, "lora2", *lora), log, kill_at="checkpoint-3/trainer_state.json")
    assert starter.wait(run) == -signal.SIGKILL
    two = train(starter, work, "lora2", *lora, "--resume")
    assert metrics(two) == metrics(one) and episodes(two) == episodes(one)
    for name in ("adapter_model.safetensors", "ref/adapter_model.safetensors"):
        assert_same_tensors(*(folder / "checkpoint-4" / name for folder in (one, two)))


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (("name=whole",), "add --resume"),
        (("name=nowhere", "--resume"), "no run to resume"),
        (("name=whole", "--resume", "train.beta=0.2"), "train.beta was 0.1, is 0.2"),
        (("name=few", "corpus.limit=2"), "questions"),
        (("name=x", "model.path={whole}/checkpoint-9"), "there is no folder"),
    ],
)
def test_a_run_that_cannot_start_says_why_in_one_sentence(whole, work, capsys, more, says):
    assert main(arguments(work, "x", *STEPS, *(text.format(whole=whole) for text in more))) == 2
    assert says in capsys.readouterr().err


def test_a_resume_meets_the_prompts_that_the_run_began_with(whole: Path, work: Path, capsys) -> None:
    prompts = work / "prompts.json"
    shutil.copy(ROOT / "configs" / "prompts" / "demo.json", prompts)
    saved = (whole / "config.yaml").read_text()
    (whole / "config.yaml").write_text(saved.replace("configs/prompts/demo.json", str(prompts)))
    prompts.write_text(json.dumps({**json.loads(prompts.read_text()), "system": "Answer."}))
    try:
        assert main([*arguments(work, "whole", *STEPS, f"env.prompts={prompts}"), "--resume"]) == 2
    finally:
        (whole / "config.yaml").write_text(saved)
    assert f"the prompts (env.prompts={prompts}) changed since the run" in capsys.readouterr().err
