"""A run's folder: whose it is, and its checkpoints, which survive a kill at any moment.

A whole checkpoint is marked, and only then do older ones go.
"""

import shutil
from pathlib import Path

from train.config import Config
from train.config_check import ConfigError, check_resume
from train.config_load import flatten, load_config, save_config
from train.episode_log import EPISODES
from train.shape import is_main_process

CONFIG = "config.yaml"
COMPLETE = "complete"  # written last: a checkpoint without it was cut off


def run_folder(config: Config) -> Path:
    """The run's folder."""
    return Path(config.output) / config.name


def prepare_folder(config: Config, resume: bool) -> Path | None:
    """Make the run's folder, or find the checkpoint to resume from; ConfigError where the folder does not fit.

    A resume without any checkpoint yet starts at update 0 again: nothing but the first updates is lost. A folder
    in which no update was played holds no run: a start that failed can be repeated.
    """
    folder = run_folder(config)
    saved = folder / CONFIG
    checkpoint = latest_checkpoint(folder)
    if resume and not saved.exists():
        raise ConfigError(f"there is no run to resume in {folder}; leave --resume out, or set the run's name=...")
    if resume:
        check_resume(flatten(load_config([saved])), flatten(config), str(checkpoint or folder))
    elif checkpoint or (folder / EPISODES).exists():
        raise ConfigError(f"{folder} holds a run already; add --resume to go on with it, or set another name=...")
    if is_main_process():
        folder.mkdir(parents=True, exist_ok=True)
        save_config(config, saved)
    return checkpoint


def latest_checkpoint(folder: Path) -> Path | None:
    """The newest checkpoint of a run's folder that was written to its end; None where there is none."""
    return max((path.parent for path in folder.glob(f"checkpoint-*/{COMPLETE}")), key=_number, default=None)


def finish_checkpoint(checkpoint: Path, keep: int) -> None:
    """Mark ``checkpoint`` as whole, then remove all others of its run but the ``keep`` newest whole ones.

    What a kill cut off goes too. The trainer's own rotation would remove the last whole checkpoint before this one is.
    """
    (checkpoint / COMPLETE).touch()
    folders = sorted(checkpoint.parent.glob("checkpoint-*"), key=_number)
    kept = [folder for folder in folders if (folder / COMPLETE).exists()][-keep:]
    for folder in folders:
        if folder not in kept:
            (folder / COMPLETE).unlink(missing_ok=True)  # first: half removed, it is whole no more
            shutil.rmtree(folder)


def _number(checkpoint: Path) -> int:
    return int(checkpoint.name.rpartition("-")[2])
