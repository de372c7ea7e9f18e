"""What a checkpoint holds beyond TRL's own part, written and read by all processes together."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch.optim.lr_scheduler import LambdaLR

from sqale_grpo.settings.run_folder import finish_checkpoint
from sqale_grpo.train.anchor import check_reference_adapter, load_reference, save_reference
from sqale_grpo.train.breaks import writing
from sqale_grpo.train.launch import save_launch


@contextmanager
def whole_or_gone(trainer: Any, folder: Path) -> Iterator[None]:
    """Inside, a checkpoint is written; what an error leaves of it is removed, with the room that it takes.

    NoRoom where the disk refuses it.
    """
    try:
        with writing(folder):
            yield
    except Exception:
        if trainer.args.should_save:
            shutil.rmtree(folder, ignore_errors=True)
        raise


def finish(trainer: Any, checkpoint: Path, keep: int) -> None:
    """Add the reference policy and the launch to TRL's part of ``checkpoint``, seal it, and remove older ones."""
    # After TRL's own part: what is written before it may be wiped. A LoRA reference is an adapter, in that part.
    if trainer.ref_model is not None:
        save_reference(trainer.accelerator.unwrap_model(trainer.ref_model), checkpoint, trainer.args.should_save)
    # The other processes write parts of it too: their random states, their share of a sharded optimizer.
    trainer.accelerator.wait_for_everyone()
    if trainer.args.should_save:
        save_launch(checkpoint)
        finish_checkpoint(checkpoint, keep)
    trainer.accelerator.wait_for_everyone()  # none plays on and fails while the seal is not on the disk


def follow_schedule(scheduler: Any) -> None:
    """Let the next update have the rate of this run's schedule: a run that was extended had another when it saved."""
    inner = getattr(scheduler, "scheduler", scheduler)  # accelerate wraps it under DeepSpeed
    if isinstance(inner, LambdaLR):
        rates = [base * shape(inner.last_epoch) for base, shape in zip(inner.base_lrs, inner.lr_lambdas, strict=True)]
        for group, rate in zip(inner.optimizer.param_groups, rates, strict=True):
            group["lr"] = rate
        inner._last_lr = rates  # what is logged


def restore_reference(trainer: Any, checkpoint: Path) -> None:
    """Give the trainer the reference policy of ``checkpoint``."""
    if trainer.ref_model is None:
        check_reference_adapter(checkpoint)
    else:
        load_reference(trainer.accelerator.unwrap_model(trainer.ref_model), checkpoint)
