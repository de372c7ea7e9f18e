"""Where a sweep's run stands, read from its folder: nothing is kept elsewhere, so a kill loses nothing."""

from dataclasses import dataclass
from typing import Literal

from sqale_grpo.env.files import write_whole
from sqale_grpo.rollout.record import METRICS, read_metrics
from sqale_grpo.settings.check import ConfigError, check_resume
from sqale_grpo.settings.load import flatten, load_config
from sqale_grpo.settings.run_folder import CONFIG, latest_checkpoint
from sqale_grpo.sweep.file import SweepRun

State = Literal["new", "unfinished", "failed", "finished"]
LOG, FAILURE = "sweep.log", "sweep.failed"  # within a run's folder


@dataclass(frozen=True)
class Standing:
    """A run's state, the updates whose metrics are on disk, and a failed run's last words."""

    state: State
    updates: int
    error: str = ""


def standing(run: SweepRun) -> Standing:
    """Finished: its last update's checkpoint is whole. Failed: its process ended with an error, and was not redone."""
    updates = len(read_metrics(run.folder / METRICS)[0])
    checkpoint = latest_checkpoint(run.folder)
    if checkpoint is not None and checkpoint.name == f"checkpoint-{run.config.train.updates}":
        return Standing("finished", updates)
    failure = run.folder / FAILURE
    if failure.exists():
        return Standing("failed", updates, failure.read_text(encoding="utf-8"))
    return Standing("unfinished" if (run.folder / CONFIG).exists() else "new", updates)


def check_folder(run: SweepRun) -> None:
    """ConfigError where the run's folder holds a run of another configuration."""
    saved = run.folder / CONFIG
    if saved.exists():
        check_resume(flatten(load_config([saved])), flatten(run.config), str(run.folder))


def start_command(run: SweepRun) -> list[str]:
    """What starts the run, or goes on with it."""
    resume = ["--resume"] if (run.folder / CONFIG).exists() else []
    return [*run.command, *resume]


def mark_failed(run: SweepRun, code: int) -> str:
    """Keep the last words of a run that ended with exit status ``code``; returns them."""
    log = run.folder / LOG
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines() if log.exists() else []
    said = next((line.strip() for line in reversed(lines) if line.strip()), "it said nothing")
    ended = f"ended by signal {-code}" if code < 0 else f"exit status {code}"
    text = f"{ended}: {said}"
    write_whole(run.folder / FAILURE, text)
    return text


def check_folders(runs: list[SweepRun]) -> None:
    """ConfigError at the first run whose folder is another's, before any is started."""
    for run in runs:
        try:
            check_folder(run)
        except ConfigError as error:
            raise ConfigError(f"run {run.name}: {error}") from error
