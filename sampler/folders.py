"""Scratch folders: where episode databases lie, one folder a process, gone when the process is.

A process holds a lock on a file beside its folder. At exit it removes both; after a kill the system has let go of the
lock, and the next process that makes a folder in the same place removes what the dead one left.
"""

import atexit
import os
import secrets
import shutil
import tempfile
import threading
from pathlib import Path

from sqale_grpo.env.files import take_lock

RAM_ROOT = Path("/dev/shm")
_PREFIX = "sqale-episodes-"
_lock = threading.Lock()
_folders: dict[tuple[int, Path], tuple[Path, int]] = {}


def memory_root(needed: int) -> Path:
    """Root for files of ``needed`` bytes in all: memory where that much is free there twice over, else the disk.

    Containers often give /dev/shm no more than 64 MB. ``TMPDIR`` names the place on disk.
    """
    if RAM_ROOT.is_dir() and os.access(RAM_ROOT, os.W_OK | os.X_OK):
        state = os.statvfs(RAM_ROOT)
        if state.f_bavail * state.f_frsize >= 2 * needed:
            return RAM_ROOT
    return Path(tempfile.gettempdir())


def scratch_folder(root: Path) -> Path:
    """This process's folder under ``root``, made at the first call. Raises OSError where it cannot be made."""
    key = (os.getpid(), root)
    with _lock:
        if key not in _folders:
            _sweep(root)
            _folders[key] = _make(root)
        return _folders[key][0]


def _make(root: Path) -> tuple[Path, int]:
    while True:
        folder = root / f"{_PREFIX}{os.getpid()}-{secrets.token_hex(4)}"
        lock = _lock_file(folder)
        handle = os.open(lock, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
        take_lock(handle, wait=True)
        if lock.exists():
            folder.mkdir(mode=0o700)
            return folder, handle
        os.close(handle)  # another process swept the file between its making and its locking: once more


def _sweep(root: Path) -> None:
    """Remove the folders of dead processes: those whose lock can be had."""
    for lock in root.glob(f"{_PREFIX}*.lock"):
        try:
            handle = os.open(lock, os.O_RDWR)
        except OSError:
            continue  # another user's, or just removed
        try:
            if take_lock(handle, wait=False):
                _remove(lock.with_suffix(""))
        finally:
            os.close(handle)


def _remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    _lock_file(folder).unlink(missing_ok=True)


def _lock_file(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.lock")


@atexit.register
def _remove_own() -> None:
    for (pid, _), (folder, _) in _folders.items():
        if pid == os.getpid():
            _remove(folder)


def _after_fork() -> None:
    """A forked child makes its own folders, and must not wait for a lock that a thread of the parent held."""
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)
