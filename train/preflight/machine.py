"""The machine: processes against GPUs, and the disk that checkpoints go to."""

import os
import shutil
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed

from sqale_grpo.settings.run_folder import checkpoints_bytes
from sqale_grpo.settings.shape import launched_processes
from sqale_grpo.train.preflight.table import CheckRow, failed, right

GIB = 2**30
SLOW_SECONDS = 600.0  # a checkpoint that takes longer is a third of the 30 minutes in which processes must answer
PROBE_BYTES = 2**30
BLOCK = 2**24


def processes(use_cpu: bool, visible: int | None = None) -> CheckRow:
    """Whether the processes that were announced are there, each with one GPU. ``visible``: GPUs, as torch counts."""
    name = "processes"
    announced = launched_processes()
    together = torch.distributed.get_world_size() if torch.distributed.is_initialized() else 1
    if announced != together:
        return failed(
            name,
            f"{announced} announced (WORLD_SIZE), {together} connected",
            "unset WORLD_SIZE, RANK and MASTER_ADDR, or start through scripts/launch",
        )
    if use_cpu:
        return right(name, f"{together}, on the CPU")
    gpus = torch.cuda.device_count() if visible is None else visible
    here = int(os.environ.get("LOCAL_WORLD_SIZE", announced))
    if gpus < here:
        return failed(name, f"{here} on this machine, {gpus} GPUs visible", "start fewer, or set CUDA_VISIBLE_DEVICES")
    if announced == 1 and gpus > 1:
        return failed(
            name,
            f"1, and {gpus} GPUs visible: the trainer would split each pass over all of them",
            "set CUDA_VISIBLE_DEVICES=0, or start one process a GPU (scripts/launch/zero2.sh)",
        )
    if gpus > here:
        return CheckRow(name, "warned", f"{here} on this machine, {gpus} GPUs visible", f"{gpus - here} GPUs stay idle")
    return right(name, f"{together}, {here} on this machine, a GPU each")


def disk(folder: Path, checkpoint: int, kept: int, probe: int = PROBE_BYTES, assumed: bool = False) -> CheckRow:
    """Whether ``folder`` has room for ``kept`` checkpoints of so many bytes and one more, and how fast it is written.

    What checkpoints take already is theirs. ``assumed``: the size is a guess, which cannot fail. Writes and syncs
    ``probe`` bytes, or a tenth of what is free, and removes them.
    """
    name = "disk"
    wanted, free = max(0, checkpoint * (kept + 1) - checkpoints_bytes(folder)), shutil.disk_usage(folder).free
    if free < wanted:
        return CheckRow(
            name,
            "warned" if assumed else "failed",
            f"{free / GIB:,.1f} GiB free in {folder}, {wanted / GIB:,.1f} more wanted: {kept + 1} checkpoints of "
            f"{checkpoint / GIB:,.1f}",
            "set output=... to a larger disk, or train.keep_checkpoints=1",
        )
    size = max(BLOCK, min(probe, free // 10) // BLOCK * BLOCK)
    speed = size / _written_seconds(folder, size)
    seconds = checkpoint / speed
    found = (
        f"{free / GIB:,.0f} GiB free, {wanted / GIB:,.1f} wanted; {speed / 2**20:,.0f} MiB/s, "
        f"{seconds:,.0f} s a checkpoint"
    )
    if seconds > SLOW_SECONDS:
        return CheckRow(name, "warned", found, "a faster file system; other processes wait for 30 minutes at most")
    return right(name, found)


def _written_seconds(folder: Path, size: int) -> float:
    block = os.urandom(BLOCK)  # a file system that compresses or leaves out zeros would look faster than it is
    with tempfile.TemporaryFile(dir=folder) as file:
        started = time.monotonic()
        for _ in range(size // BLOCK):
            file.write(block)
        file.flush()
        os.fsync(file.fileno())
        return time.monotonic() - started
