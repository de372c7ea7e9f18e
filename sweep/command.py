"""A W&B sweep file without W&B: every combination a process and a run folder of its own, restartable.

    sqale-grpo sweep configs/sweep/corpora.yaml [more.yaml ...] [--jobs N] [--dry-run] [section.key=value ...]

A finished run is left alone, an unfinished one goes on from its last checkpoint, a failed one is shown as failed and
run again at the next start. Ends with a comparison, also in OUTPUT/sweep-NAME/comparison.md and .jsonl. Overrides
hold for every run; BLOCK=true adds the runs of the file NAME_BLOCK.yaml beside NAME.yaml (ablations=true).
"""

import argparse
import shlex
import signal
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from sqale_grpo.env.files import check_place, hold_folder
from sqale_grpo.env.text import harmless
from sqale_grpo.rollout.record import METRICS, read_metrics
from sqale_grpo.settings.check import ConfigError
from sqale_grpo.settings.load import known_keys
from sqale_grpo.sweep.comparison import compare, failures, rich_table, write_comparison
from sqale_grpo.sweep.file import SweepRun, read_sweep
from sqale_grpo.sweep.launch import launch
from sqale_grpo.sweep.state import check_folders, standing, start_command


def main(arguments: list[str] | None = None) -> int:
    """0 when every run is finished, 1 when one failed. Raises ConfigError for a mistake in the file or the words."""
    options = _parser().parse_intermixed_args(arguments)
    console = Console()
    files, overrides = sweep_files(options.inputs)
    runs = read_runs(files, overrides)
    check_folders(runs)
    for output in {run.config.output for run in runs}:
        check_place(output, "output=", ConfigError)
    if options.dry_run:
        show_plan(runs)
        return 0
    folder = Path(runs[0].config.output) / f"sweep-{files[0].stem}"
    with hold_folder(folder, error=ConfigError):  # a second start of the sweep would run the same folders twice
        run_all(runs, options.jobs, console)
        return finish(runs, folder, console)


def sweep_files(inputs: list[str]) -> tuple[list[Path], list[str]]:
    """The sweep files, those of switched-on blocks included, and the overrides."""
    files = [Path(word) for word in inputs if "=" not in word]
    if not files:
        raise ConfigError("no sweep file given; there is configs/sweep/corpora.yaml")
    overrides = []
    for name, value in (word.split("=", 1) for word in inputs if "=" in word):
        block = files[0].with_name(f"{files[0].stem}_{name}.yaml")
        if name not in known_keys() and name != "config" and value in ("true", "false"):
            if not block.is_file():
                raise ConfigError(f"{name}={value}: {name} is no key, and there is no block of runs at {block}")
            files += [block] if value == "true" else []
        else:
            overrides.append(f"{name}={value}")
    return files, overrides


def read_runs(files: list[Path], overrides: list[str]) -> list[SweepRun]:
    """The runs of all files; one that several files hold is one run."""
    runs: dict[Path, SweepRun] = {}
    for file in files:
        for run in read_sweep(file, overrides):
            other = runs.setdefault(run.folder, run)
            if other.config != run.config:
                raise ConfigError(f"{file}: {run.folder} is another run's folder already; let name= tell them apart")
    return list(runs.values())


def show_plan(runs: list[SweepRun]) -> None:
    """Print the commands, as a shell takes them; finished runs are comments."""
    for run in runs:
        at = standing(run)
        print(
            f"# {run.name}: {at.state}" + (f", {at.updates} of {run.config.train.updates} updates" * bool(at.updates))
        )
        print(("# " if at.state == "finished" else "") + shlex.join(start_command(run)))


def run_all(runs: list[SweepRun], jobs: int, console: Console) -> None:
    """Run what is not finished, with a bar a running run."""
    # A plain kill is to end the runs as Ctrl-C does; a shell starts what it puts into the background deaf to Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        TextColumn("{task.completed:.0f} of {task.total:.0f}"),
        TextColumn("{task.fields[says]}"),
        console=console,
        disable=not console.is_terminal,
    )
    tasks: dict[str, Any] = {}

    def tick(running: list[SweepRun]) -> None:
        if not console.is_terminal:
            return
        for name in set(tasks) - {run.name for run in running}:
            bar.remove_task(tasks.pop(name))
        for run in running:
            lines, _ = read_metrics(run.folder / METRICS)
            if run.name not in tasks:
                tasks[run.name] = bar.add_task(run.name, total=run.config.train.updates, says="")
            says = f"equivalent {lines[-1]['equivalent_rate']:.0%}" if lines else "prepares"
            bar.update(tasks[run.name], completed=len(lines), says=says)

    done = sum(standing(run).state == "finished" for run in runs)
    console.print(f"{len(runs)} runs, {done} of them finished, {jobs} at once")
    with bar:
        launch(runs, jobs, lambda text: tell(console, text), tick)


def finish(runs: list[SweepRun], folder: Path, console: Console) -> int:
    """Print and write the comparison."""
    records = compare(runs)
    console.print(rich_table(records, folder.name))
    table, lines = write_comparison(records, folder)
    for text in failures(records):
        tell(console, text)
    failed = [record["name"] for record in records if record["state"] != "finished"]
    tell(console, f"written to {table} and {lines}")
    if failed:
        console.print(f"{len(failed)} of {len(records)} runs failed; the same command runs them again", soft_wrap=True)
    return 1 if failed else 0


def tell(console: Console, text: str) -> None:
    """One line as it is: a run's last words may hold anything."""
    console.print(harmless(text), soft_wrap=True, markup=False, highlight=False)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="sqale-grpo sweep", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("inputs", nargs="+", metavar="FILE | section.key=value", help="W&B sweep files, then overrides")
    parser.add_argument("--jobs", type=_positive, default=1, metavar="N", help="runs at once (default 1)")
    parser.add_argument("--dry-run", action="store_true", help="print the commands and stop")
    return parser


def _positive(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a number above 0, not {text}")
    return int(text)
