"""What a run shows while it runs: a progress bar with the four outcome rates, and one plain line an update."""

import json
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn
from transformers import TrainerCallback

from sqale_grpo.env.files import write_whole
from sqale_grpo.rollout.record import METRICS, drop_episodes, read_metrics
from sqale_grpo.settings.run_folder import EPISODES
from sqale_grpo.train.breaks import writing

TIERS = ("equivalent", "executable", "parsable", "invalid")


class ProgressLog(TrainerCallback):
    """Shows each update and appends its metrics to ``metrics.jsonl`` in the run folder.

    On a resume, lines and episodes of updates after the checkpoint are dropped: they are about to be made again, and
    off one CPU process not quite as they were.
    """

    def __init__(self, folder: Path, console: Console) -> None:
        self.file = folder / METRICS
        self.console = console
        # All of it fits into 80 columns.
        self.bar = Progress(
            SpinnerColumn("line"),  # moves while an update is played, which takes seconds to minutes
            BarColumn(bar_width=6),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.description}"),
            console=console,
            disable=not console.is_terminal,
        )

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Start the bar at the update where the run begins or goes on."""
        if not state.is_world_process_zero:
            return
        drop_lines(self.file, state.global_step)
        drop_episodes(self.file.parent / EPISODES, state.global_step)
        first = f"playing the episodes of update {state.global_step}, then it learns"
        if not self.console.is_terminal and state.global_step < args.max_steps:
            self.console.print(first, highlight=False)
        self.task = self.bar.add_task(first, total=args.max_steps, completed=state.global_step)
        self.bar.start()

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float] | None = None, **_: Any) -> None:
        """One update's metrics; the last call of a run is TRL's summary and has no rates."""
        if not state.is_world_process_zero or not logs or "equivalent_rate" not in logs:
            return
        update = state.global_step - 1
        with writing(self.file), self.file.open("a") as file:
            file.write(json.dumps({"update": update, **logs}) + "\n")
        rates = " ".join(f"{tier} {logs[f'{tier}_rate']:.0%}" for tier in TIERS)
        if logs.get("void_rate"):
            rates += f" void {logs['void_rate']:.0%}"
        self.console.print(
            f"update {update:>4}  reward {logs['reward']:.2f}  {rates}  "
            f"calls {logs['tool_calls']:.1f}  gate {logs['gate_rate']:.0%}  kl {logs.get('kl', 0.0):.3f}  "
            f"{logs['seconds/update']:.1f} s",
            highlight=False,
            soft_wrap=True,  # a log file has no width
        )
        self.bar.update(self.task, completed=state.global_step, description=rates)

    def stop(self) -> None:
        """Give the terminal back; also after an error or Ctrl-C."""
        self.bar.stop()

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Stop the bar."""
        self.stop()


def drop_lines(file: Path, update: int) -> None:
    """Keep the lines of the updates before ``update`` alone; a last line that a kill cut off goes too."""
    kept = [line for line in read_metrics(file)[0] if line["update"] < update]
    write_whole(file, "".join(json.dumps(line) + "\n" for line in kept))


def logged_updates(folder: Path) -> int:
    """How many updates of the run in ``folder`` were logged, those that a resume plays again among them."""
    return max((line["update"] + 1 for line in read_metrics(folder / METRICS)[0]), default=0)
