"""The same experiment on one process and on two: a full vision-language checkpoint, groups that straddle processes.

The two processes of a launch hold 6 episodes each of 3 questions x 4 candidates: 1.5 groups.
"""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests.checkpoints import with_vision_tower
from tests.train.launch import Starter, torchrun
from tests.train.runs import SHORT, arguments, episodes, metrics, train
from train.anchor import FILE as REFERENCE
from train.folder import latest_checkpoint

DEEPSPEED = {"DS_ACCELERATOR": "cpu", "ACCELERATE_USE_DEEPSPEED": "true", "ACCELERATE_GRADIENT_CLIPPING": "1.0"}
LAUNCHES = {
    "ddp": (29_610, {}),
    "zero2": (29_620, {**DEEPSPEED, "ACCELERATE_DEEPSPEED_ZERO_STAGE": "2"}),
    "zero3": (
        29_630,
        {**DEEPSPEED, "ACCELERATE_DEEPSPEED_ZERO_STAGE": "3", "ACCELERATE_DEEPSPEED_ZERO3_SAVE_16BIT_MODEL": "true"},
    ),
}
# What must not depend on the number of processes, whatever the policy wrote.
DRAWN = ("update", "question_id", "candidate", "db_id", "bucket", "question", "gold_sql", "tables", "gated")
SCORED = ("sql", "tier", "f1", "join_share", "error", "ended_by", "opened_tables", "written_tokens")


@pytest.fixture(scope="module")
def recipe(starter: Starter, work: Path) -> list[str]:
    """Overrides of all runs here: a full checkpoint around the small warm-started policy."""
    train(starter, work, "maker", *SHORT, "train.max_steps=1")  # prepares corpus and policy where no other test did
    policy = next((work / "prepared" / "demo-policy").glob("*/config.json")).parent
    full = with_vision_tower(policy, work / "full")
    return [f"model.path={full}", *SHORT, "train.max_steps=3"]


@pytest.fixture(scope="module")
def alone(starter: Starter, work: Path, recipe: list[str]) -> Path:
    """The run of one process."""
    return train(starter, work, "alone", *recipe)


def test_a_full_checkpoint_trains_its_language_model_and_keeps_its_tower(alone: Path, work: Path) -> None:
    first, last = (load_file(path / "model.safetensors") for path in (work / "full", alone / "checkpoint-3"))
    tower = {name for name in last if name.startswith("model.visual.")}
    assert tower and tower == {name for name in first if name.startswith("model.visual.")}
    assert all(torch.equal(last[name], first[name].float()) for name in tower)
    moved = {name for name in set(last) - tower if not torch.equal(last[name], first[name].float())}
    assert moved == set(last) - tower
    assert all(line["grad_norm"] > 0 and line["reward_std"] > 0 for line in metrics(alone))
    assert all(line["sampling/logp_difference"] < 1e-5 for line in metrics(alone))


@pytest.mark.parametrize("launch", ["ddp", "zero2", pytest.param("zero3", marks=pytest.mark.slow)])
def test_two_processes_run_the_experiment_of_one(launch: str, alone: Path, work: Path, recipe: list[str]) -> None:
    port, environment = LAUNCHES[launch]
    torchrun(2, arguments(work, launch, *recipe), port, **environment)
    both = work / "runs" / launch
    ours, theirs = episodes(both), episodes(alone)
    assert len(ours) == 3 * 12
    for one, other in zip(ours, theirs, strict=True):
        assert {name: one[name] for name in DRAWN} == {name: other[name] for name in DRAWN}
        if one["turns"] == other["turns"]:
            assert {name: one[name] for name in SCORED} == {name: other[name] for name in SCORED}
    # Sums in another order may flip a token now and then; in the first update nothing has been summed yet.
    same = [one["turns"] == other["turns"] for one, other in zip(ours, theirs, strict=True)]
    assert all(same[:12]) and sum(same) >= 30
    for start in range(0, len(ours), 4):
        if all(same[start : start + 4]):
            assert [x["reward"] for x in ours[start : start + 4]] == [x["reward"] for x in theirs[start : start + 4]]
    assert [x["agrees"] for x in ours[:12]] == [x["agrees"] for x in theirs[:12]]
    for one, other in zip(metrics(both)[:1], metrics(alone)[:1], strict=True):
        assert one["loss"] == pytest.approx(other["loss"], abs=1e-6) and one["grad_norm"] > 0
        assert one["grad_norm"] == pytest.approx(other["grad_norm"], rel=1e-3)
    # The anchor after 2 updates: nothing to pay for in the next one, and it lies in the checkpoint.
    assert metrics(both)[2]["kl"] == pytest.approx(0, abs=1e-6) and metrics(both)[1]["kl"] > 1e-4
    checkpoint = latest_checkpoint(both)
    assert checkpoint is not None and checkpoint.name == "checkpoint-3"
    policy, reference = load_file(both / "checkpoint-2" / "model.safetensors"), load_file(checkpoint / REFERENCE)
    assert set(policy) - set(reference) <= {"lm_head.weight"}, "tied to the embedding; DeepSpeed writes it twice"
    assert all(torch.equal(value, policy[name]) for name, value in reference.items())
