"""Files that others read while they are written: whole or not there, held by one process, readable after a cut."""

import contextlib
import errno
import fcntl
import io
import json
import os
import shutil
import socket
import stat
import tempfile
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from sqale_grpo.env.errors import UserError, system_sentence

PARTIAL = ".partial"  # ends the name of what is not whole yet
LOCK = ".lock"  # within a held folder; it stays there, since removing it would let two processes hold two files
_NO_LOCKS = {errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK}
_held: "weakref.WeakSet[io.FileIO]" = weakref.WeakSet()


def write_whole(path: str | Path, data: str | bytes, mode: int = 0o666) -> None:
    """Write a file that is there whole, as it was before, or not at all. Text is written as UTF-8.

    ``mode``: its permissions, less what the umask takes. Raises OSError that names ``path``; nothing half is left.
    """
    with whole_file(path, mode) as file:
        file.write(data.encode("utf-8") if isinstance(data, str) else data)


@contextlib.contextmanager
def whole_file(path: str | Path, mode: int = 0o666) -> Iterator[BinaryIO]:
    """A binary file to write that becomes ``path`` where the block ends without an error.

    It is written beside ``path``, flushed to the disk, then renamed. After an error it is removed; what a killed
    process left is removed by the next one that writes the same path. Two that write it at once take turns.
    """
    path = Path(path)
    partial = partial_path(path)
    try:
        with os.fdopen(_open_alone(partial, mode), "wb") as file:
            try:
                yield file
                file.flush()
                os.fsync(file.fileno())
                os.replace(partial, path)
            except BaseException:
                partial.unlink(missing_ok=True)
                with contextlib.suppress(OSError):
                    file.close()  # which fails once more where a full disk left something in the buffer
                raise
    except OSError as error:
        # A write that fails does not say to which file, and nobody knows the partial file's name.
        if error.errno and error.filename in (None, str(partial), partial):
            error.filename, error.filename2 = str(path), None
        raise


@contextlib.contextmanager
def whole_folder(path: str | Path) -> Iterator[Path]:
    """A new folder to fill that becomes ``path`` where the block ends without an error, and is removed otherwise.

    What a killed process left is removed first. ``path`` is not there yet, or is an empty folder: else OSError.
    """
    path = Path(path)
    partial = partial_path(path)
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        yield partial
        for file in partial.rglob("*"):
            if file.is_file():
                _flush(file)
        give_usual_modes(partial)
        os.replace(partial, path)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def open_to_others(path: str | Path) -> None:
    """Give a file the permissions of any new file: libraries write some that their owner alone may read."""
    os.chmod(path, 0o666 & ~_umask())


def give_usual_modes(folder: Path) -> None:
    """Let others read and write the files below ``folder`` as far as the umask does.

    Some libraries write files for their owner alone (safetensors). What is linked from elsewhere stays as it is.
    """
    usual = 0o666 & ~_umask()
    for file in folder.rglob("*"):
        state = file.lstat()
        if stat.S_ISREG(state.st_mode) and state.st_nlink == 1 and state.st_mode & usual != usual:
            file.chmod(stat.S_IMODE(state.st_mode) | usual)


def check_place(path: str | Path, meant: str, error: type[UserError] = UserError, folder: bool = True) -> None:
    """Raise ``error`` where no folder, or no file, can be written at ``path``, before hours of work are to lie there.

    ``meant``: what names the place to a person, as ``output=``. Leaves no trace.
    """
    place = Path(path).absolute()
    try:
        while not _is_there(place):
            place = place.parent
        if not folder and place == Path(path).absolute():
            with open(place, "r+b"):
                return
        with tempfile.TemporaryDirectory(prefix=".sqale-", dir=place):
            return
    except OSError as refused:
        if refused.errno in (errno.ENOSPC, errno.EDQUOT):  # a start may free room first, by what a kill left behind
            return
        refused.filename = str(path)
        raise error(f"{meant} cannot be written: {system_sentence(refused)}") from refused


def _is_there(place: Path) -> bool:
    """Raises what the system refuses of a name: too long a one, or one within a file."""
    try:
        place.lstat()
    except FileNotFoundError:
        return False
    return True


def partial_path(path: Path) -> Path:
    """Where ``path`` is written until it is whole."""
    return path.with_name(f"{path.name}{PARTIAL}")


def hold_folder(
    folder: str | Path, wait: bool = False, error: type[UserError] = UserError, instead: str = ""
) -> io.FileIO:
    """Hold a folder, made where it is missing, until the returned lock is closed or this process ends.

    ``wait``: until no other process holds it; else ``error`` is raised, which says who does and ends with what to do
    ``instead``, as in "set another name=...". On a file system without locks nothing is held.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    lock = io.FileIO(folder / LOCK, "a+")
    try:
        if not take_lock(lock.fileno(), wait):
            fix = f", or {instead}" if instead else ""
            raise error(f"another process{_holder(lock)} holds {folder}; wait for it or end it{fix}")
    except BaseException:
        lock.close()
        raise
    _held.add(lock)
    with contextlib.suppress(OSError):  # the lock holds on a full disk too
        lock.truncate(0)
        lock.write(f"{os.getpid()} on {socket.gethostname()}\n".encode())
    return lock


def take_lock(handle: int, wait: bool) -> bool:
    """Lock an open file against other processes; False where another one has it and this one does not ``wait``.

    The system lets go of it when the file is closed or the process ends, however it ends.
    """
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            return False
        if error.errno not in _NO_LOCKS:
            raise
    return True


def read_json_lines(
    path: str | Path, fits: Callable[[dict[str, Any]], bool] = bool
) -> tuple[list[dict[str, Any]], list[int]]:
    """The objects of a file with one JSON object per line, and the numbers, from 1, of the lines that hold none.

    An object that does not ``fit`` is none either. A kill cuts off a line; what was appended later counts all the
    same. Blank lines count for nothing; a file that is not there has no lines.
    """
    try:
        text = Path(path).read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return [], []
    found, damaged = [], []
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            value = None
        if isinstance(value, dict) and fits(value):
            found.append(value)
        else:
            damaged.append(number)
    return found, damaged


def _open_alone(partial: Path, mode: int) -> int:
    """A new, locked file at ``partial``; one that is there is waited for, and removed if its writer was killed."""
    while True:
        made = True
        try:
            handle = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        except FileExistsError:
            made = False
            try:
                handle = os.open(partial, os.O_RDWR)
            except FileNotFoundError:
                continue
        try:
            take_lock(handle, wait=True)
            ours = _is_at(handle, partial)
            if made and ours:
                return handle
            if ours:
                partial.unlink()
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)


def _is_at(handle: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), os.stat(path))
    except FileNotFoundError:
        return False


def _flush(file: Path) -> None:
    handle = os.open(file, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _holder(lock: io.FileIO) -> str:
    lock.seek(0)
    said = lock.read(200).decode("utf-8", "replace").strip()
    return f" ({said})" if said else ""


def _umask() -> int:
    """The umask; asking the system by setting another would take it from other threads for a moment."""
    try:
        (line,) = (each for each in Path("/proc/self/status").read_text().splitlines() if each.startswith("Umask:"))
        return int(line.split()[1], 8)
    except (OSError, ValueError):  # no /proc: ask the system after all
        was = os.umask(0o077)
        os.umask(was)
        return was


def _after_fork() -> None:
    """A forked child must not hold what its parent held once the parent is dead."""
    for lock in list(_held):
        lock.close()


os.register_at_fork(after_in_child=_after_fork)
