"""The demo's processes: this one and a partner beside it, so that two cores train, and evaluate, at once.

They are what torchrun would start, without its agent: an update's groups and an evaluation's questions are shared out
among them, and they talk through gloo. Where a partner ends early the next exchange fails here;
a partner ends with the main process.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from sqale_grpo.env.errors import UserError

HOST = "127.0.0.1"
PARTNER = "sqale_grpo.demo.background"
WAIT = timedelta(minutes=30)  # for the other process at an exchange: as long as a very slow machine plays an update
LOOK_SECONDS = 0.1
END_SECONDS = 10.0  # a partner's time to end after the main process is done with it


class PartnerError(UserError):
    """A partner of this process ended before the work was done."""

    exit_status = 1


@contextmanager
def partners(count: int, config: Path, resume: bool, log: Path) -> Iterator[None]:
    """Start ``count - 1`` partners for the configuration saved in ``config``, and join them; all end with the block.

    Their own messages go to ``log``. With ``count`` 1 nothing is started. PartnerError where one ends early.
    """
    if count == 1:
        yield
        return
    import torch.distributed as dist

    store = dist.TCPStore(HOST, 0, count, is_master=True, wait_for_workers=False, timeout=WAIT)
    started: list[subprocess.Popen] = []
    try:
        with log.open("ab") as messages:
            for rank in range(1, count):
                started.append(_start(rank, count, store.port, config, resume, messages))
        _wait_until_joined(store, started, log)
        _connect(store, 0, count)
        yield
        dist.destroy_process_group()
    except RuntimeError as error:  # gloo's, where a connection is gone
        if any(partner.poll() not in (None, 0) for partner in started):
            raise PartnerError(_ended_early(log)) from error
        raise
    finally:
        _end(started)


def join(rank: int, count: int, port: int) -> None:
    """From a partner: join the main process, which listens on ``port``."""
    import torch.distributed as dist

    store = dist.TCPStore(HOST, port, count, is_master=False, timeout=WAIT)
    store.add("joined", 1)
    _connect(store, rank, count)


def wait_for_all() -> None:
    """Return when every process has called this; at once where there is one."""
    import torch.distributed as dist

    if dist.is_initialized():
        dist.barrier()


def _connect(store: Any, rank: int, count: int) -> None:
    import torch.distributed as dist

    # What torchrun sets, and accelerate reads.
    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    values = (rank, rank, count, count, HOST, store.port)
    os.environ |= {name: str(value) for name, value in zip(names, values, strict=True)}
    dist.init_process_group("gloo", store=store, rank=rank, world_size=count, timeout=WAIT)


def _start(rank: int, count: int, port: int, config: Path, resume: bool, messages: Any) -> subprocess.Popen:
    numbers = map(str, (rank, count, port, int(resume), os.getpid()))
    words = [sys.executable, "-m", PARTNER, str(config), *numbers]
    # A group of its own: Ctrl-C is for the main process, which ends its partners.
    return subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=messages, stderr=messages, process_group=0)


def _wait_until_joined(store: Any, started: list[subprocess.Popen], log: Path) -> None:
    """In steps, since the store's own wait would neither see a partner's end nor hear Ctrl-C."""
    while store.add("joined", 0) < len(started):
        if any(partner.poll() is not None for partner in started):
            raise PartnerError(_ended_early(log))
        time.sleep(LOOK_SECONDS)


def _end(started: list[subprocess.Popen]) -> None:
    failing = sys.exc_info()[0] is not None
    for partner in started:
        if failing:
            partner.terminate()
        try:
            partner.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            partner.kill()
            partner.wait()


def _ended_early(log: Path) -> str:
    return f"a partner process of the demo ended early; what it said is in {log}"
