"""The same experiment on one process and on two: a full vision-language checkpoint, groups that straddle processes.

The two processes of a launch hold 6 episodes each of 3 questions x 4 candidates: 1.5 groups.
"""

import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from sqale_grpo.rollout.demo_policy import demo_policy_folder
from sqale_grpo.settings.run_folder import latest_checkpoint
from sqale_grpo.train.anchor import FILE as REFERENCE
from tests.helpers.checkpoints import with_vision_tower
from tests.helpers.launch import Starter, kill_launch, start_torchrun, torchrun
from tests.helpers.runs import SHORT, arguments, assert_same_tensors, episodes, metrics, train

DEEPSPEED = {"DS_ACCELERATOR": "cpu", "ACCELERATE_USE_DEEPSPEED": "true", "ACCELERATE_GRADIENT_CLIPPING": "1.0"}
LAUNCHES: dict[str, dict[str, str]] = {
    "ddp": {},
    "lora": {},
    "zero2": {**DEEPSPEED, "ACCELERATE_DEEPSPEED_ZERO_STAGE": "2"},
    "zero3": {
        **DEEPSPEED,
        "ACCELERATE_DEEPSPEED_ZERO_STAGE": "3",
        "ACCELERATE_DEEPSPEED_ZERO3_SAVE_16BIT_MODEL": "true",
    },
}
LORA = ["model.lora_rank=4", "train.learning_rate=5e-3"]
# What must not depend on the number of processes, whatever the policy wrote.
DRAWN = ("update", "question_id", "candidate", "db_id", "bucket", "question", "gold_sql", "tables", "gated")
SCORED = ("sql", "tier", "f1", "join_share", "error", "ended_by", "opened_tables", "written_tokens")


@pytest.fixture(scope="module")
def recipe(starter: Starter, work: Path) -> list[str]:
    """Overrides of all runs here: a full checkpoint around the demo's policy."""
    train(starter, work, "maker", *SHORT, "train.updates=1")  # prepares the corpus where no other test did
    full = with_vision_tower(demo_policy_folder(), work / "full")
    return [f"model.path={full}", *SHORT, "train.updates=3"]


@pytest.fixture(scope="module")
def alone(starter: Starter, work: Path, recipe: list[str]) -> Path:
    """The run of one process."""
    return train(starter, work, "alone", *recipe)


@pytest.mark.long
def test_a_full_checkpoint_trains_its_language_model_and_keeps_its_tower(alone: Path, work: Path) -> None:
    first, last = (load_file(path / "model.safetensors") for path in (work / "full", alone / "checkpoint-3"))
    tower = {name for name in last if name.startswith("model.visual.")}
    assert tower and tower == {name for name in first if name.startswith("model.visual.")}
    assert all(torch.equal(last[name], first[name].float()) for name in tower)
    moved = {name for name in set(last) - tower if not torch.equal(last[name], first[name].float())}
    assert moved == set(last) - tower
    assert any(line["grad_norm"] > 0 and line["reward_std"] > 0 for line in metrics(alone))
    assert all(line["sampling/logp_difference"] < 1e-5 for line in metrics(alone))


def both(launch: str, work: Path, recipe: list[str], *more: str) -> Path:
    """The run of two processes; played once, whichever test asks first."""
    environment = LAUNCHES[launch]
    folder = work / "runs" / launch
    if not folder.exists():
        torchrun(2, arguments(work, launch, *recipe, *more), work / f"{launch}.log", **environment)
    return folder


def assert_same_experiment(run: Path, other: Path) -> None:
    """What is drawn is equal; what a policy earned is equal where it wrote the same, which it does nearly always."""
    ours, theirs = episodes(run), episodes(other)
    assert len(ours) == 3 * 12
    for mine, its in zip(ours, theirs, strict=True):
        assert {name: mine[name] for name in DRAWN} == {name: its[name] for name in DRAWN}
        if mine["turns"] == its["turns"]:
            assert {name: mine[name] for name in SCORED} == {name: its[name] for name in SCORED}
    # Sums in another order may flip a token now and then, and what it earns the next update's; in the first update
    # nothing has been summed yet.
    same = [mine["turns"] == its["turns"] for mine, its in zip(ours, theirs, strict=True)]
    assert all(same[:12]) and sum(same) >= 24
    for start in range(0, len(ours), 4):
        if all(same[start : start + 4]):
            assert [x["reward"] for x in ours[start : start + 4]] == [x["reward"] for x in theirs[start : start + 4]]
    assert [x["agrees"] for x in ours[:12]] == [x["agrees"] for x in theirs[:12]]
    mine, its = metrics(run), metrics(other)
    assert [line["update"] for line in mine] == [line["update"] for line in its] == [0, 1, 2]
    assert mine[0]["loss"] == pytest.approx(its[0]["loss"], abs=1e-6)
    assert mine[0]["grad_norm"] == pytest.approx(its[0]["grad_norm"], rel=1e-3)
    # The anchor after 2 updates: nothing to pay for in the next one.
    assert mine[2]["kl"] == pytest.approx(0, abs=1e-6)
    # Where the first update's rewards differ, which the processor's rounding decides, the policy has moved.
    assert mine[1]["kl"] > 1e-4 or mine[0]["grad_norm"] == 0


@pytest.mark.parametrize(
    "launch",
    [
        pytest.param("zero2", marks=pytest.mark.long),
        pytest.param("ddp", marks=pytest.mark.slow),
        pytest.param("zero3", marks=pytest.mark.slow),
    ],
)
def test_two_processes_run_the_experiment_of_one(launch: str, alone: Path, work: Path, recipe: list[str]) -> None:
    run = both(launch, work, recipe)
    assert_same_experiment(run, alone)
    checkpoint = latest_checkpoint(run)
    assert checkpoint is not None and checkpoint.name == "checkpoint-3"
    policy, reference = load_file(run / "checkpoint-2" / "model.safetensors"), load_file(checkpoint / REFERENCE)
    assert set(policy) - set(reference) <= {"lm_head.weight"}, "tied to the embedding; DeepSpeed writes it twice"
    assert all(torch.equal(value, policy[name]) for name, value in reference.items())


@pytest.mark.slow
def test_adapters_train_and_are_anchored_on_two_processes(starter: Starter, work: Path, recipe: list[str]) -> None:
    alone = train(starter, work, "lora-alone", *recipe, *LORA)
    run = both("lora", work, recipe, *LORA)
    assert_same_experiment(run, alone)
    assert_same_tensors(
        run / "checkpoint-3" / "ref" / "adapter_model.safetensors", run / "checkpoint-2" / "adapter_model.safetensors"
    )


@pytest.mark.slow
@pytest.mark.parametrize("launch", ["ddp", "zero2"])
def test_two_processes_that_are_killed_go_on_with_the_same_experiment(
    launch: str, work: Path, recipe: list[str]
) -> None:
    """Kill -9 of everything after the first update, a resume from its checkpoint: the run that was never stopped."""
    whole = both(launch, work, recipe)
    environment = LAUNCHES[launch]
    name = f"{launch}-killed"
    words, folder, log = arguments(work, name, *recipe), work / "runs" / name, work / f"{name}.log"
    running = start_torchrun(2, words, log, **environment)
    while latest_checkpoint(folder) is None:
        assert running.poll() is None, log.read_text()[-8000:]
        time.sleep(0.01)
    kill_launch(running)
    begun = latest_checkpoint(folder)
    assert begun is not None and begun.name != "checkpoint-3", "it was killed under way"
    torchrun(2, [*words, "--resume"], log, **environment)
    assert f"resuming from {begun}" in log.read_text().replace("\n", "")
    assert_same_experiment(folder, whole)
    # The reference of the anchor is in force again, and what the optimizer had: else the last update would be another.
    last, its = metrics(folder)[-1], metrics(whole)[-1]
    assert last["grad_norm"] == pytest.approx(its["grad_norm"], rel=0.05)
    for file in ("model.safetensors", REFERENCE):
        ours, theirs = (load_file(run / "checkpoint-3" / file) for run in (folder, whole))
        assert all(torch.allclose(ours[name], theirs[name], atol=1e-4) for name in theirs)
