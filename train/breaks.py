"""Breaks inside a run: what ended it in one sentence, and, with ``train.heal``, the way back to the last checkpoint.

A gradient that is no number, a sampled token without a probability, an engine that is gone: the run ends before the
optimizer's step (under DeepSpeed before anything is saved), so no checkpoint holds what broke. With ``train.heal`` the
same command starts again by itself, goes on from the last checkpoint and leaves the update out. A start anew and not a
repair: a GPU's memory, NCCL and vLLM come back in a known state in a new process alone.
"""

import atexit
import errno
import json
import math
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import torch

from sqale_grpo.env.errors import UserError, first_line
from sqale_grpo.env.files import write_whole
from sqale_grpo.rollout.http import ServerError
from sqale_grpo.rollout.requests import EngineLost
from sqale_grpo.rollout.tokens import NoProbability
from sqale_grpo.settings.run_folder import BREAKS

RESTARTS = "TORCHELASTIC_RESTART_COUNT"  # set by torchrun and accelerate: how often they started the processes again
MOST_RESTARTS = "TORCHELASTIC_MAX_RESTARTS"  # … and how often they would


class NotFinite(UserError):
    """A gradient or a weight is no number."""

    exit_status = 1


class RunBreak(UserError):
    """What ended a run at ``update``; ``numbers``: it came out of the update's content, which is left out then."""

    exit_status = 1

    def __init__(self, update: int, what: str, numbers: bool) -> None:
        super().__init__(f"update {update}: {what}")
        self.update, self.what, self.numbers = update, what, numbers


class Healing(UserError):
    """A break after which the run starts again by itself."""

    exit_status = 1


@contextmanager
def breaks_at(update: int) -> Iterator[None]:
    """Inside, what ends a run is raised as a RunBreak of ``update``; every other error as it is."""
    try:
        yield
    except Exception as error:
        broken = as_break(error, update)
        if broken is None:
            raise
        raise broken from error


def as_break(error: Exception, update: int) -> RunBreak | None:
    """What ``error`` is as a break; None where it is none."""
    if isinstance(error, NotFinite | NoProbability):
        return RunBreak(update, str(error), numbers=True)
    if isinstance(error, EngineLost | ServerError):
        return RunBreak(update, str(error), numbers=False)
    if isinstance(error, torch.OutOfMemoryError):
        return RunBreak(
            update,
            f"the GPU's memory is full ({first_line(error)}); lower rollout.vllm_memory_share or train.micro_batch, "
            "or share more out (scripts/launch/zero2.sh, zero3.sh), then --resume",
            numbers=False,
        )
    return None


class NoRoom(UserError):
    """A file of the run cannot be written."""

    exit_status = 1


# What torch and safetensors raise where the system refuses to write: neither is an OSError.
WRITE_ERRORS = (
    *("No space left on device", "File too large", "Disk quota exceeded"),
    *("PytorchStreamWriter", "inline_container", "iostream error"),
)
REFUSED = {errno.ENOSPC, errno.EFBIG, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO}


@contextmanager
def writing(what: Path) -> Iterator[None]:
    """Inside, a disk that is full or must not be written is NoRoom, which names ``what`` and the way on."""
    try:
        yield
    except Exception as error:
        reason = _refusal(error)
        if reason is None:
            raise
        free = shutil.disk_usage(what.parent if what.parent.exists() else "/").free / 2**30
        raise NoRoom(
            f"{what} cannot be written ({reason}; {free:,.1f} GiB are free there): make room or mend the permissions, "
            "then go on with --resume"
        ) from error


def _refusal(error: BaseException | None) -> str | None:
    """Why the system refused to write, in an error or in those that it came from; None for another error."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in REFUSED:
            return os.strerror(error.errno)
        if not isinstance(error, UserError) and any(words in str(error) for words in WRITE_ERRORS):
            return first_line(error)
        error = error.__cause__ or error.__context__
    return None


def check_gradient(norm: float, losses: Sequence[torch.Tensor]) -> None:
    """NotFinite where the gradient's ``norm`` is no number (DeepSpeed says -1 then).

    ``losses``: of the update's passes on this process.
    """
    if math.isfinite(norm) and norm >= 0:
        return
    broken = [number for number, loss in enumerate(losses, 1) if not torch.isfinite(loss)]
    where = f"the loss of pass {broken[0]} of {len(losses)} is {losses[broken[0] - 1].item()}" if broken else ""
    raise NotFinite(
        f"the gradient is no number (norm {norm}{'; ' if where else ''}{where}): a kernel, a weight or the loss "
        "overflowed. No checkpoint holds it; `--preflight` looks at the kernels, --resume goes on from the last "
        "checkpoint, and train.heal=1 leaves the update out"
    )


def check_weights_finite(policy: torch.nn.Module) -> None:
    """NotFinite where a weight on this process is no number: such a policy is not saved."""
    for name, parameter in policy.named_parameters():
        if not torch.isfinite(parameter.detach()).all():
            raise NotFinite(f"the weight {name} is no number: nothing is saved, the checkpoint before stays")


@dataclass(frozen=True)
class Heals:
    """The breaks of the run in ``folder`` that were healed so far, as this start of it found them."""

    folder: Path
    breaks: tuple[dict, ...] = ()

    @classmethod
    def of_run(cls, folder: Path) -> "Heals":
        """Read them."""
        files = sorted((folder / BREAKS).glob("*.json"), key=lambda path: int(path.stem))
        return cls(folder, tuple(json.loads(file.read_text(encoding="utf-8")) for file in files))

    def left_out(self) -> frozenset[int]:
        """The updates that are not played again."""
        return frozenset(each["update"] for each in self.breaks if each["left_out"])

    def heal(self, error: RunBreak, allowed: int, checkpoint: str) -> bool:
        """Record the break and return True where fewer than ``allowed`` were healed before.

        Several processes that meet one break write the same file.
        """
        if len(self.breaks) >= allowed:
            return False
        entry = {"update": error.update, "what": error.what, "left_out": error.numbers, "checkpoint": checkpoint}
        folder = self.folder / BREAKS
        folder.mkdir(exist_ok=True)
        write_whole(folder / f"{len(self.breaks)}.json", json.dumps(entry, indent=1))
        return True


def restarted() -> bool:
    """Whether a launcher has started these processes again."""
    return int(os.environ.get(RESTARTS, "0")) > 0


def check_restart(folder: Path) -> None:
    """UserError where a launcher started again after what was no break: the same would end these processes too.

    A launcher starts again after any failure; ``folder``, the run's, has a file for each break that was healed.
    """
    if restarted() and len(Heals.of_run(folder).breaks) < int(os.environ[RESTARTS]):
        raise UserError("the launcher started again after what was no break of the run: its first error stands above")


def can_start_again() -> bool:
    """Whether a start after this one follows: by this process itself, or by a launcher that has one left."""
    if RESTARTS not in os.environ:
        return True
    return int(os.environ[RESTARTS]) < int(os.environ.get(MOST_RESTARTS, "0"))


def meet_anew() -> None:
    """Let processes that were started again meet at a store of their own, on the next port.

    A static rendezvous of torch's launcher keeps the first start's store, in which lie addresses at which nobody
    answers any more (torch 2.13: three of four restarts failed with gloo).
    """
    if restarted() and "MASTER_PORT" in os.environ:
        os.environ["MASTER_PORT"] = str(int(os.environ["MASTER_PORT"]) + int(os.environ[RESTARTS]))
        os.environ["TORCHELASTIC_USE_AGENT_STORE"] = "False"  # rank 0 opens one


def start_again(words: Sequence[str], error: Healing) -> NoReturn:
    """Become the same command with ``--resume``; where a launcher watches over the processes, end for it to do so."""
    if RESTARTS in os.environ:
        raise error
    print(f"{error}", file=sys.stderr, flush=True)
    sys.stdout.flush()
    atexit._run_exitfuncs()  # the tools' processes, the trackers: execv runs none
    resume = [] if "--resume" in words else ["--resume"]
    os.execv(sys.executable, [sys.executable, "-m", "sqale_grpo.train", *words, *resume])
