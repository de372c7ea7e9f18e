"""A run's folder: whose it is, and its checkpoints, which survive a kill at any moment.

A whole checkpoint is sealed, and only then do older ones go.
"""

import os
import re
import shutil
from io import FileIO
from pathlib import Path

from sqale_grpo.env.files import hold_folder
from sqale_grpo.settings.check import ConfigError, check_resume
from sqale_grpo.settings.keys import Config
from sqale_grpo.settings.load import flatten, load_config, save_config
from sqale_grpo.settings.seal import COMPLETE, MANIFEST, DamagedCheckpoint, check_seal, is_whole, seal
from sqale_grpo.settings.shape import is_main_process

CONFIG = "config.yaml"
EPISODES = "episodes"  # folder of the episodes' record
BEST = "checkpoint-best"  # a copy that outlives the others
BREAKS = "breaks"  # folder of a file for each break that was healed, numbered from 0
_NUMBERED = re.compile(r"checkpoint-(\d+)")  # another name, as of a copy that someone keeps, is none of ours
_held: dict[Path, FileIO] = {}  # locks of this process; they end with it, however it ends


def run_folder(config: Config) -> Path:
    """The run's folder."""
    return Path(config.output) / config.name


def prepare_folder(config: Config, resume: bool) -> Path | None:
    """Make the run's folder, or find the checkpoint to resume from; ConfigError where the folder does not fit.

    A resume without any checkpoint yet starts at update 0 again: nothing but the first updates is lost. A folder
    in which no update was played holds no run: a start that failed can be repeated. DamagedCheckpoint where the
    checkpoint is not as it was written.
    """
    folder = run_folder(config)
    saved = folder / CONFIG
    checkpoint = latest_checkpoint(folder)
    if resume and not saved.exists():
        raise ConfigError(f"there is no run to resume in {folder}; leave --resume out, or set the run's name=...")
    if resume:
        check_resume(flatten(load_config([saved])), flatten(config), str(checkpoint or folder))
        if checkpoint is not None and is_main_process():
            check_whole(checkpoint)
    elif checkpoint or (folder / EPISODES).exists():
        raise ConfigError(f"{folder} holds a run already; add --resume to go on with it, or set another name=...")
    if is_main_process():
        _hold(folder)
        _remove_cut(folder)
        save_config(config, saved)
    return checkpoint


def latest_checkpoint(folder: Path) -> Path | None:
    """The newest checkpoint of a run's folder that was written to its end; None where there is none."""
    return next((path for path in reversed(_checkpoints(folder)) if is_whole(path)), None)


def checkpoint_update(checkpoint: Path | None) -> int:
    """The update at which a resume from ``checkpoint`` goes on; 0 where there is none."""
    return 0 if checkpoint is None else int(checkpoint.name.rpartition("-")[2])


def check_whole(checkpoint: Path) -> None:
    """DamagedCheckpoint where ``checkpoint`` is not as it was written; it names the one before, if that one is."""
    try:
        check_seal(checkpoint, needed=True)
    except DamagedCheckpoint as error:
        raise DamagedCheckpoint(f"{error}; {_way_out(checkpoint)}") from error


def _way_out(checkpoint: Path) -> str:
    """What to do about a damaged checkpoint."""
    older = [path for path in _checkpoints(checkpoint.parent) if is_whole(path)]
    for path in reversed(older[: older.index(checkpoint)]):
        try:
            check_seal(path, needed=True)
        except DamagedCheckpoint:
            continue
        return f"{path.name} before it is whole: remove {checkpoint}, and --resume goes on from there"
    return "no other checkpoint of the run is whole: restore the file, or start a new run with another name=..."


def checkpoints_bytes(folder: Path) -> int:
    """Bytes of the checkpoints in a run's folder."""
    files = (file for path in _checkpoints(folder) for file in path.rglob("*"))
    return sum(file.stat().st_size for file in files if file.is_file())


def finish_checkpoint(checkpoint: Path, keep: int) -> None:
    """Seal ``checkpoint``, then remove all others of its run but the ``keep`` newest whole ones.

    What a kill cut off goes too. The trainer's own rotation would remove the last whole checkpoint before this one is.
    """
    seal(checkpoint)
    folders = _checkpoints(checkpoint.parent)
    kept = [folder for folder in folders if is_whole(folder)][-keep:]
    for folder in folders:
        if folder not in kept:
            (folder / COMPLETE).unlink(missing_ok=True)  # first: half removed, it is whole no more
            shutil.rmtree(folder, ignore_errors=True)  # what a busy disk keeps goes with the next checkpoint


def keep_best(folder: Path, update: int) -> bool:
    """Keep the checkpoint of ``update`` as ``checkpoint-best`` too; False where it is that one, or not whole.

    Files are linked, so it costs no room while the checkpoint itself is kept.
    """
    source, best = folder / f"checkpoint-{update}", folder / BEST
    if not is_whole(source) or best_is(folder, update):
        return False
    fresh = folder / f"{BEST}.partial"
    shutil.rmtree(fresh, ignore_errors=True)
    shutil.copytree(source, fresh, copy_function=_link)
    shutil.rmtree(best, ignore_errors=True)
    fresh.rename(best)
    return True


def best_is(folder: Path, update: int) -> bool:
    """Whether ``checkpoint-best`` is the whole checkpoint of ``update`` that is there."""
    ours, theirs = (folder / name / MANIFEST for name in (BEST, f"checkpoint-{update}"))
    try:
        return is_whole(folder / BEST) and ours.read_bytes() == theirs.read_bytes()
    except OSError:
        return False


def _link(source: str, target: str) -> None:
    """A hard link, or a copy where the file system has none."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def _remove_cut(folder: Path) -> None:
    """Remove checkpoints that a kill or a full disk cut off: they hold the room that the next one needs."""
    for path in _checkpoints(folder):
        if not is_whole(path):
            shutil.rmtree(path, ignore_errors=True)


def _checkpoints(folder: Path) -> list[Path]:
    """The checkpoints in a run's folder, whole or not, in the order of their updates."""
    found = ((_NUMBERED.fullmatch(path.name), path) for path in folder.glob("checkpoint-*"))
    return [path for _, path in sorted((int(match[1]), path) for match, path in found if match)]


def _hold(folder: Path) -> None:
    """Keep the folder for this process as long as it lives; ConfigError where another one has it.

    Two runs that write one folder would spoil both.
    """
    key = folder.resolve()
    if key not in _held:
        _held[key] = hold_folder(folder, error=ConfigError, instead="set another name=...")
