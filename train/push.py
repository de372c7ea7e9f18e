"""Pushing checkpoints during a run, in a process beside it: the run neither waits for it nor fails with it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from transformers import TrainerCallback

PUSHES = "pushes"
LOG = "push.log"
# Of a checkpoint, what an export reads; not the optimizer's state, nor the reference's weights.
NEEDED = ("*.safetensors", "*.json", "*.jinja", "*.txt", "*.model")
WAIT_SECONDS = 900.0  # at the run's end, for the last push
# A pushing process is none of the launch, and must not ask for a GPU.
LAUNCH = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


class CheckpointPush(TrainerCallback):
    """Exports and pushes a checkpoint every ``every`` updates, and the last one.

    A checkpoint is first linked under another name, so that rotation cannot remove it meanwhile; the export is made
    and sent by ``export.background`` at the lowest priority. One push at a time: a checkpoint that
    comes while one runs is left out. A failure is one line, and the next checkpoint is pushed all the same.
    """

    def __init__(self, folder: Path, every: int, repo: str, console: Console, wait: float = WAIT_SECONDS) -> None:
        self.folder = folder
        self.every = every
        self.repo = repo
        self.console = console
        self.wait = wait
        self.running: subprocess.Popen | None = None
        self.update = 0

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Start a push where this checkpoint is one to push."""
        last = state.global_step >= state.max_steps
        if not state.is_world_process_zero or (state.global_step % self.every and not last):
            return
        self._poll()
        if self.running is not None and last:
            self._wait()
        if self.running is not None:
            self._say(f"update {state.global_step} is not pushed: update {self.update} is still on its way")
            return
        try:
            self._start(Path(args.output_dir) / f"checkpoint-{state.global_step}", state.global_step)
        except OSError as error:
            self._say(f"warning: update {state.global_step} was not pushed: {error}")

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Look whether a push has ended."""
        self._poll()

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Give the last push its time."""
        self._poll()
        self._wait()

    def _start(self, checkpoint: Path, update: int) -> None:
        linked = link_checkpoint(checkpoint, self.folder / f"pushing-{update}")
        folder = self.folder / PUSHES
        folder.mkdir(exist_ok=True)
        program = [sys.executable, "-m", "sqale_grpo.export.background", str(linked), str(folder / f"export-{update}")]
        slow = ["nice", "-n", "19"] if shutil.which("nice") else []
        environment = {name: value for name, value in os.environ.items() if name not in LAUNCH}
        with (folder / LOG).open("ab") as log:
            self.running = subprocess.Popen(
                [*slow, *program, self.repo, f"Update {update}"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment | {"CUDA_VISIBLE_DEVICES": ""},
                start_new_session=True,  # Ctrl-C ends the run; what is being sent is sent to its end
            )
        self.update = update
        self._say(f"pushing update {update} to {self.repo}")

    def _poll(self) -> None:
        if self.running is None or self.running.poll() is None:
            return
        code, self.running = self.running.returncode, None
        if code == 0:
            self._say(f"update {self.update} is pushed")
        else:
            said = last_line(self.folder / PUSHES / LOG) or f"exit status {code}"
            self._say(f"warning: update {self.update} was not pushed: {said}")

    def _wait(self) -> None:
        if self.running is None:
            return
        self._say(f"waiting for the push of update {self.update}")
        try:
            self.running.wait(self.wait)
        except subprocess.TimeoutExpired:
            log = self.folder / PUSHES / LOG
            self._say(f"the push of update {self.update} goes on as process {self.running.pid}; it writes to {log}")
            self.running = None
        self._poll()

    def _say(self, text: str) -> None:
        self.console.print(text, highlight=False, markup=False, soft_wrap=True)


def link_checkpoint(checkpoint: Path, copy: Path) -> Path:
    """A folder with hard links to what an export needs of a checkpoint (copies where the disk has none)."""
    shutil.rmtree(copy, ignore_errors=True)
    copy.mkdir()
    files = {file for pattern in NEEDED for file in checkpoint.glob(pattern)}
    if not files:
        raise OSError(f"{checkpoint} holds no weights")
    for file in sorted(files):
        try:
            os.link(file, copy / file.name)
        except OSError:
            shutil.copyfile(file, copy / file.name)
    return copy


def last_line(log: Path) -> str:
    """The last line of a log that is not blank."""
    lines = log.read_text(encoding="utf-8", errors="replace").split("\n") if log.is_file() else []
    return next((line.strip() for line in reversed(lines) if line.strip()), "")
