"""Starting a sweep's runs, so many at once, each a process of its own that never outlives the sweep."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import IO

from sqale_grpo.env.program import die_with
from sqale_grpo.sweep.file import SweepRun
from sqale_grpo.sweep.state import FAILURE, LOG, mark_failed, standing, start_command

POLL_SECONDS = 0.2
GRACE_SECONDS = 10.0  # between the request to end and the kill


@dataclass
class _Child:
    run: SweepRun
    process: subprocess.Popen[bytes]
    log: IO[bytes]


def launch(
    runs: Sequence[SweepRun],
    jobs: int,
    report: Callable[[str], None],
    tick: Callable[[list[SweepRun]], None] = lambda running: None,
) -> None:
    """Run what is not finished, ``jobs`` at once, in order; a run that fails does not stop the others.

    ``report`` gets a line at each start and end, ``tick`` the running ones a few times a second. When this raises
    (Ctrl-C, SIGTERM as SystemExit), every process that it started has ended.
    """
    waiting = [run for run in runs if standing(run).state != "finished"]
    children: list[_Child] = []
    try:
        while waiting or children:
            while waiting and len(children) < jobs:
                run = waiting.pop(0)
                report(f"{run.name}: {'goes on' if (run.folder / LOG).exists() else 'starts'} ({run.folder / LOG})")
                children.append(_start(run))
            time.sleep(POLL_SECONDS)
            tick([child.run for child in children])
            for child in [child for child in children if child.process.poll() is not None]:
                children.remove(child)
                report(_finish(child))
    finally:
        _end(children)


def _start(run: SweepRun) -> _Child:
    run.folder.mkdir(parents=True, exist_ok=True)
    (run.folder / FAILURE).unlink(missing_ok=True)
    log = (run.folder / LOG).open("ab")
    process = subprocess.Popen(
        start_command(run),
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        start_new_session=True,  # one signal to the group reaches a launcher's own processes too
        preexec_fn=die_with(os.getpid()),
    )
    return _Child(run, process, log)


def _finish(child: _Child) -> str:
    child.log.close()
    code = child.process.returncode
    _signal_group(child, signal.SIGKILL)  # what a launcher left behind
    if code:
        return f"{child.run.name}: failed, {mark_failed(child.run, code)}"
    state = standing(child.run).state
    if state != "finished":
        return f"{child.run.name}: failed, {mark_failed(child.run, code)} (it ended before its last update)"
    return f"{child.run.name}: finished"


def _end(children: Sequence[_Child]) -> None:
    for child in children:
        _signal_group(child, signal.SIGTERM)
    deadline = time.monotonic() + GRACE_SECONDS
    for child in children:
        with suppress(subprocess.TimeoutExpired):
            child.process.wait(max(0.0, deadline - time.monotonic()))
        _signal_group(child, signal.SIGKILL)
        child.process.wait()
        child.log.close()


def _signal_group(child: _Child, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.killpg(child.process.pid, number)
