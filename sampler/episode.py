"""Episode database: the chosen tables as a file that lives as long as the episodes of one group."""

import errno
import itertools
import os
import shutil
import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path

from sqale_grpo.sampler.builders import run_builder
from sqale_grpo.sampler.folders import memory_root, scratch_folder
from sqale_grpo.sampler.source import MissingExtension

# A file up to here is copied in at most 20 ms even when every table is chosen; a larger one is overlaid.
SMALL_BYTES = 8 * 2**20
# What a file system says where it allows no link: another device, another owner, read-only, too many of them.
NO_LINK = (errno.EXDEV, errno.EPERM, errno.EACCES, errno.EROFS, errno.EMLINK, errno.ENOTSUP)
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EIO)
SIDES = ("-wal", "-shm")  # of an overlay's name: the log, the guard
_numbers = itertools.count()


class EpisodeDatabase:
    """A database of exactly ``tables`` at ``path``; a context manager that removes the file on leaving.

    Nobody writes the file. It is opened read-only: as immutable, except for a ``path`` with a ``-wal`` file beside it.
    """

    def __init__(self, path: Path, tables: Sequence[str]) -> None:
        self.path = path
        self.tables = tuple(tables)

    def close(self) -> None:
        """Remove the file. Closing twice does nothing."""
        _remove(self.path)

    def __enter__(self) -> "EpisodeDatabase":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_episode_database(source: str | Path, tables: Sequence[str], small_bytes: int = SMALL_BYTES) -> EpisodeDatabase:
    """The database of ``tables``, in this order, from the file ``source``, which nobody may write meanwhile.

    A source of at most ``small_bytes`` is copied, table by table, into memory where there is room; a larger one
    is overlaid: neither copied nor read, it opens in milliseconds. So is a small one whose rows SQLite cannot copy, for
    want of another program's collations or functions. Errors are those of ``build_database``.
    """
    file = source_path(source)
    if file.stat().st_size <= small_bytes:
        try:
            return _copied(file, tables)
        except MissingExtension:
            database = _overlaid(file, tables)
            if database is None:
                raise
            return database
    database = _overlaid(file, tables)
    if database is not None:
        return database
    warnings.warn(
        f"{source} ({file.stat().st_size / 2**20:.0f} MB) can be linked from none of {_link_roots(file)}, so its "
        "tables are copied for each group: put it on a file system where its owner may write",
        RuntimeWarning,
        stacklevel=2,
    )
    return _copied(file, tables)


def build_database(source: str | Path, tables: Sequence[str], out: str | Path) -> Path:
    """Write the database of ``tables``, in this order, to ``out``, which must not exist; returns ``out``.

    Each table comes with rows, indexes, declared keys, generated columns, AUTOINCREMENT counter and planner
    statistics. Raises FileNotFoundError and ValueError for a bad source, ValueError for an unknown table,
    FileExistsError for an existing ``out``.
    """
    target = Path(out)
    if target.exists():
        raise FileExistsError(f"{out} exists; an episode's database is always a new file")
    try:
        run_builder("copy", source_path(source), tables, target.absolute())
    except BaseException:
        target.unlink(missing_ok=True)
        raise
    return target


def source_path(source: str | Path) -> Path:
    """The file itself, links followed. Raises FileNotFoundError."""
    file = Path(source).resolve()
    if not file.is_file():
        raise FileNotFoundError(f"no database file at {source}")
    return file


def _copied(file: Path, tables: Sequence[str]) -> EpisodeDatabase:
    """In memory where there is room, else in the temporary folder: others may fill the memory meanwhile."""
    first = memory_root(file.stat().st_size)
    try:
        return _place(first, "copy", file, tables)
    except OSError as error:
        second = Path(tempfile.gettempdir())
        if error.errno not in NO_ROOM or second == first:
            raise
        return _place(second, "copy", file, tables)


def _overlaid(file: Path, tables: Sequence[str]) -> EpisodeDatabase | None:
    """The overlay at the first place that allows one, or None."""
    attempts = (_try(file, tables, root) for root in _link_roots(file))
    return next((database for database in attempts if database is not None), None)


def _link_roots(file: Path) -> list[Path]:
    """Places for a link to the file: it must lie on the same file system."""
    device = file.stat().st_dev
    roots = [memory_root(0), Path(tempfile.gettempdir()), file.parent]
    return [root for root in dict.fromkeys(roots) if root.stat().st_dev == device]


def _try(file: Path, tables: Sequence[str], root: Path) -> EpisodeDatabase | None:
    """The overlay under ``root``, or None where the file system does not allow it there."""
    try:
        return _place(root, "overlay", file, tables)
    except OSError as error:
        if error.errno not in (*NO_LINK, *NO_ROOM):
            raise
        return None


def _place(root: Path, how: str, file: Path, tables: Sequence[str]) -> EpisodeDatabase:
    """Build on a new path under ``root``; nothing is left behind where it fails."""
    path = scratch_folder(root) / f"{next(_numbers)}.sqlite"
    try:
        run_builder(how, file, tables, path)
        if how == "overlay":
            os.link(file, path)
    except BaseException:
        _remove(path)
        raise
    return EpisodeDatabase(path, tables)


def _remove(path: Path) -> None:
    path.unlink(missing_ok=True)
    log, guard = (Path(f"{path}{side}") for side in SIDES)
    if log.exists() or guard.exists():
        log.unlink(missing_ok=True)
        shutil.rmtree(guard, ignore_errors=True)
