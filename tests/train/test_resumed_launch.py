"""A resume under another launch: refused where the optimizer's state could not be taken over."""

from pathlib import Path

import pytest

from sqale_grpo.settings.check import ConfigError
from sqale_grpo.train.launch import check_resumed_launch, save_launch

FSDP = {"ACCELERATE_USE_FSDP": "true"}


def zero(stage: int, processes: int) -> dict[str, str]:
    return {
        "ACCELERATE_USE_DEEPSPEED": "true",
        "ACCELERATE_DEEPSPEED_ZERO_STAGE": str(stage),
        "WORLD_SIZE": str(processes),
    }


@pytest.mark.parametrize(
    ("wrote", "resumes", "says"),
    [
        # Without DeepSpeed the trainer finds no optimizer in such a checkpoint, and begins with a new one.
        (zero(2, 2), {"WORLD_SIZE": "2"}, "sharded by zero2.*by none; resume with configs/accelerate/zero2.yaml"),
        (zero(2, 2), zero(3, 2), "zero2"),
        ({}, zero(2, 2), "resume with torchrun"),
        ({}, FSDP, "by none.*by fsdp2"),
        (FSDP, {}, "configs/accelerate/fsdp2.yaml"),
        (zero(3, 2), zero(3, 3), "over 2 processes, and this launch has 3; resume with 2"),
    ],
)
def test_another_sharding_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, wrote, resumes, says) -> None:
    with monkeypatch.context() as patch:
        for name, value in wrote.items():
            patch.setenv(name, value)
        save_launch(tmp_path)
    for name, value in resumes.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match=says):
        check_resumed_launch(tmp_path)


@pytest.mark.parametrize(
    ("wrote", "resumes"),
    [({}, {"WORLD_SIZE": "2"}), (zero(2, 2), zero(2, 2)), ({**FSDP, "WORLD_SIZE": "4"}, {**FSDP, "WORLD_SIZE": "2"})],
)
def test_what_can_be_taken_over_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, wrote, resumes) -> None:
    check_resumed_launch(tmp_path)  # of a checkpoint that does not say
    with monkeypatch.context() as patch:
        for name, value in wrote.items():
            patch.setenv(name, value)
        save_launch(tmp_path)
    for name, value in resumes.items():
        monkeypatch.setenv(name, value)
    check_resumed_launch(tmp_path)
