"""All checks in their order, before the first update: by themselves (``--preflight``) or at the start of a run."""

import dataclasses
import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import gather_object
from rich.console import Console
from transformers import TrainerCallback

from sqale_grpo.env.errors import UserError
from sqale_grpo.env.files import write_whole
from sqale_grpo.rollout.policy_path import resolve_policy
from sqale_grpo.train.launch import sharding
from sqale_grpo.train.memory import checkpoint_bytes
from sqale_grpo.train.model_shape import is_assumed, model_shape
from sqale_grpo.train.preflight.draws import golds_run, same_draws
from sqale_grpo.train.preflight.engine import parity, turns_cut, weights_arrive
from sqale_grpo.train.preflight.kernels import kernel_gradients, kernels_there
from sqale_grpo.train.preflight.machine import PROBE_BYTES, disk, processes
from sqale_grpo.train.preflight.memory import longest_pass
from sqale_grpo.train.preflight.table import CheckRow, decide, made, show, worst

RECORD = "preflight.json"  # in the run's folder: the table's rows
GOLD_UPDATES = 3
CPU_PROBE = 2**26  # bytes written to the disk where a CPU trains: tests and demos


class PreflightDone(UserError):
    """The checks were all that was asked for, and none failed."""

    exit_status = 0


class Preflight(TrainerCallback):
    """Makes the checks when model, optimizer and engine stand, before the first update.

    ``alone``: the process ends with them, so that the one that changes the optimizer's state is made too.
    """

    def __init__(self, folder: Path, console: Console, alone: bool) -> None:
        self.folder, self.console, self.alone = folder, console, alone
        self.trainer: Any = None  # set once it is made: it is made with its callbacks

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Check, print the table, and raise PreflightFailed or, alone, PreflightDone."""
        random = torch.get_rng_state()
        try:
            results = all_checks(self.trainer, self.folder, self.alone)
        finally:
            torch.set_rng_state(random)
        if self.trainer.accelerator.is_main_process:
            rows = [dataclasses.asdict(each) for each in results]
            write_whole(self.folder / RECORD, json.dumps(rows, indent=1))
        show(results, self.console, "preflight")
        decide(results)
        if self.alone:
            raise PreflightDone("the preflight found nothing wrong")


def all_checks(trainer: Any, folder: Path, alone: bool) -> list[CheckRow]:
    """The worst of all processes' results, a check a row; all processes call it.

    What costs least comes first, and where the processes are not those that were announced, nothing else is made.
    """
    experiment, accelerator = trainer.experiment, trainer.accelerator
    config, device = experiment.config, accelerator.device
    first = made("processes", lambda: processes(config.train.use_cpu))
    results = [gathered_worst(first)]
    if results[0].state == "failed":
        return results
    policy = accelerator.unwrap_model(trainer.model)
    on_gpu = device.type == "cuda"
    process, together = accelerator.process_index, accelerator.num_processes
    path = resolve_policy(config.model.path)
    shape = model_shape(path, config.model.lora_targets)
    size, guess = checkpoint_bytes(config, shape, sharding()), is_assumed(shape, path)
    kept = config.train.keep_checkpoints
    single = together == 1  # else a process must not end inside a check in which others wait for it
    checks: list[tuple[str, bool, Callable[[], CheckRow]]] = [
        ("disk", True, lambda: main_only(process, lambda: disk(folder, size, kept, probe(on_gpu), guess))),
        ("kernels", True, lambda: kernels_there(policy, on_gpu)),
        ("kernel gradients", True, lambda: kernel_gradients(policy, device)),
        ("draws", single, lambda: same_draws(experiment, experiment.first_update)),
        ("gold queries", True, lambda: golds_run(experiment, experiment.first_update, GOLD_UPDATES, process, together)),
    ]
    results += [gathered_worst(made(name, check, lone)) for name, lone, check in checks]
    results += parity_rows(trainer, single)
    engine_failed = any(row.state == "failed" for row in results[-2:])
    for name, of_engine in (("weights arrive", weights_arrive), ("turns cut", turns_cut)):
        if engine_failed:
            results.append(CheckRow(name, "not made", "what generates failed already"))
        else:
            results.append(gathered_worst(made(name, functools.partial(of_engine, trainer), single)))
    if alone:
        results.append(gathered_worst(made("memory", lambda: longest_pass(trainer), single)))
    else:
        results.append(CheckRow("memory", "not made", "only with --preflight: it changes the optimizer's state"))
    return results


def gathered_worst(result: CheckRow) -> CheckRow:
    """The worst of all processes' results, which all call it."""
    return worst(gather_object([result]))


def parity_rows(trainer: Any, single: bool) -> list[CheckRow]:
    """The two rows that one rollout gives."""
    shares: list[CheckRow] = []

    def both() -> CheckRow:
        row, share = parity(trainer)
        shares.append(share)
        return row

    row = made("engine and trainer", both, single)
    share = shares[0] if shares else CheckRow("effective share", "not made", "there were no log-probabilities")
    return [gathered_worst(row), gathered_worst(share)]


def main_only(process: int, check: Callable[[], CheckRow]) -> CheckRow:
    """What one process looks at for all."""
    return check() if process == 0 else CheckRow("", "not made", "process 0 looks")


def probe(on_gpu: bool) -> int:
    """How many bytes are written to the disk."""
    return PROBE_BYTES if on_gpu else CPU_PROBE
