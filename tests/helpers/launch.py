"""Training runs as processes of their own, for the tests: started, killed at a moment of choice, started again.

``Starter`` is one process that has imported everything and forks for each run, so that a start costs no imports. What
it forks is ``sqale-grpo train`` in all else. ``torchrun`` starts runs of several processes.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil

from tests.conftest import ROOT

SECONDS = 1_500  # more than any run here takes on a busy machine
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive", "TRL_EXPERIMENTAL_SILENCE": "1"}


class Starter:
    """Starts ``sqale-grpo train ARGUMENTS`` as forks of a process that has imported it."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.helpers.launch"],
            cwd=ROOT,
            env={**os.environ, **ENVIRONMENT},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def start(self, arguments: list[str], log: Path, kill_at: str = "") -> int:
        """Start a run, its output in ``log``, and return its process id.

        ``kill_at``: the run is killed as it opens the first file whose path holds this text.
        """
        self._ask({"arguments": arguments, "log": str(log), "kill_at": kill_at})
        return int(self._answer())

    def wait(self, run: int) -> int:
        """The run's exit status, negative for the signal that ended it."""
        self._ask({"wait": run})
        return int(self._answer())

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(SECONDS)

    def _ask(self, request: dict) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()

    def _answer(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()


def kill_when(run: int, happened: Callable[[], bool], log: Path) -> None:
    """Kill -9 the run and all that it started as soon as ``happened`` says so."""
    deadline = time.monotonic() + SECONDS
    while not happened():
        assert time.monotonic() < deadline and Path(f"/proc/{run}/cmdline").read_bytes(), log.read_text()[-4000:]
        time.sleep(0.01)
    os.killpg(run, signal.SIGKILL)


def start_torchrun(
    processes: int,
    arguments: list[str],
    log: Path,
    module: str = "sqale_grpo.train",
    restarts: int = 0,
    **environment: str,
) -> subprocess.Popen:
    """Start ``sqale-grpo train ARGUMENTS`` on several processes of this machine, their output in ``log``.

    ``module`` stands in the train program's place; the processes are started again up to ``restarts`` times.
    """
    with socket.socket() as probe:  # a port of its own: another test run on this machine may hold any fixed one
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "torch.distributed.run", f"--nproc_per_node={processes}", f"--master_port={port}"]
    command += [f"--max_restarts={restarts}"] if restarts else []
    with log.open("a") as file:
        return subprocess.Popen(
            [*command, "-m", module, *arguments],
            cwd=ROOT,
            env={**os.environ, **ENVIRONMENT, **environment},
            stdout=file,
            stderr=subprocess.STDOUT,
        )


def torchrun(processes: int, arguments: list[str], log: Path, **environment: str) -> None:
    """The same, run to its end."""
    launch = start_torchrun(processes, arguments, log, **environment)
    assert launch.wait(SECONDS) == 0, log.read_text()[-8000:]


def kill_launch(launch: subprocess.Popen) -> None:
    """Kill -9 a launch and all its processes at once, as a machine that goes down does."""
    running = psutil.Process(launch.pid)
    for process in [running, *running.children(recursive=True)]:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    launch.wait(SECONDS)


def _serve() -> None:
    """Fork a run for each line on stdin."""
    import sqale_grpo.train.run  # noqa: F401  all that a run imports
    from sqale_grpo.commands import main

    for line in sys.stdin:
        request = json.loads(line)
        if "wait" in request:
            print(os.waitstatus_to_exitcode(os.waitpid(request["wait"], 0)[1]), flush=True)
            continue
        run = os.fork()
        if run:
            print(run, flush=True)
            continue
        os.setsid()
        log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        for stream in (1, 2):
            os.dup2(log, stream)
        if request["kill_at"]:
            sys.addaudithook(_killer(request["kill_at"]))
        sys.exit(main(["train", *request["arguments"]]))


def _killer(path: str) -> Callable[[str, tuple], None]:
    def hook(event: str, arguments: tuple) -> None:
        if event == "open" and path in str(arguments[0]):
            os.killpg(0, signal.SIGKILL)

    return hook


if __name__ == "__main__":
    _serve()
