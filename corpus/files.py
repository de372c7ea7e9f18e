"""SQLite files: where a corpus keeps them, what they are called once prepared, and how they get there.

What a prepared folder remembers of its source: a change of any file gives another fingerprint.
"""

import fcntl
import hashlib
import os
import shutil
import sqlite3
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from urllib.parse import quote

SIDECARS = ("-wal", "-journal")  # both hold pages that the main file lacks
SUFFIXES = (".sqlite", ".sqlite3", ".db")


def file_name(db_id: str) -> str:
    """The name of a prepared database: the id itself, with whatever is not plain ASCII percent-encoded."""
    name = quote(db_id, safe=" !#$&'()+,;=@[]^{}~")
    return (f"%2E{name[1:]}" if name.startswith(".") else name) + ".sqlite"


class Places:
    """The folders in which a corpus keeps its SQLite files.

    A name counts as it is written, and else without control characters and regardless of case: ``unzip`` leaves a line
    break out of a folder's name, and people write an id as they speak.
    """

    def __init__(self, folders: Sequence[Path]) -> None:
        self.folders = folders
        self._folded: dict[str, list[Path]] | None = None

    def locate(self, db_id: str) -> Path | None:
        """The SQLite file of ``db_id``: ``<id>/<id>.sqlite``, else ``<id>.sqlite``, or another suffix.

        None where there is none, or where several have its name but for the case.
        """
        for folder in self.folders:
            for stem in (folder / db_id / db_id, folder / db_id):
                for suffix in SUFFIXES:
                    path = f"{stem}{suffix}"
                    if "\0" not in db_id and os.path.isfile(path):  # Path.is_file raises for too long a name
                        return Path(path)
        found = self._by_folded_name().get(folded(db_id), [])
        return found[0] if len(found) == 1 else None

    def _by_folded_name(self) -> dict[str, list[Path]]:
        if self._folded is None:
            self._folded = {}
            for path in _databases(self.folders):
                inside = path.parent not in self.folders
                if not inside or folded(path.parent.name) == folded(path.stem):
                    self._folded.setdefault(folded(path.stem), []).append(path)
        return self._folded

    def wanted_at(self, db_id: str, *, flat: bool = False) -> str:
        """Where the file of ``db_id`` should lie, in words; ``flat``: not in a folder of its own."""
        name = folded(db_id, case=True)
        place = Path(f"{name}.sqlite") if flat else Path(name, f"{name}.sqlite")
        return " or ".join(str(folder / place) for folder in self.folders)


def folded(name: str, *, case: bool = False) -> str:
    """The name without control characters and, unless ``case`` is kept, in lower case."""
    printed = "".join(letter for letter in name if unicodedata.category(letter) != "Cc")
    return printed if case else printed.casefold()


def locate(db_id: str, folders: Sequence[Path]) -> Path | None:
    """The SQLite file of ``db_id`` in one of ``folders``."""
    return Places(folders).locate(db_id)


def located(db_ids: Collection[str], folders: Sequence[Path]) -> Iterator[tuple[str, Path]]:
    """Yield (db_id, file) for every id that has a file: the questions of another one are dropped, and counted."""
    places = Places(folders)
    found = ((db_id, places.locate(db_id)) for db_id in sorted(db_ids))
    return ((db_id, path) for db_id, path in found if path is not None)


def candidates(folders: Sequence[Path]) -> list[Path]:
    """Every SQLite file that ``locate`` could return, with its sidecars, sorted."""
    return _databases(folders, ("", *SIDECARS))


def _databases(folders: Sequence[Path], sides: Sequence[str] = ("",)) -> list[Path]:
    """SQLite files in the folders and one level below, sorted."""
    endings = tuple(f"{suffix}{side}" for suffix in SUFFIXES for side in sides)
    found: set[Path] = set()
    for folder in folders:
        for entry in _entries(folder):
            inside = [entry] if entry.is_file() else _entries(entry.path) if entry.is_dir() else []
            found.update(Path(file.path) for file in inside if file.name.endswith(endings))
    return sorted(found)


def _entries(folder: str | Path) -> list[os.DirEntry[str]]:
    """What a folder holds: nothing, if there is none or it may not be read. One look, since there may be 16,575."""
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:
        return []


COPIED_BYTES = 1 << 30
FICLONE = 0x40049409  # Linux: share the blocks of another file until one of the two is written


def copy_database(source: Path, out: Path) -> None:
    """Make ``out`` a database of its own with the pages of ``source``, which its program may go on to change.

    A clone where the file system has them, else a copy; a file over ``COPIED_BYTES`` is named by a symbolic link, and
    nobody may write it then. Symbolic links to a source are followed. A file with a write-ahead log or a rollback
    journal beside it is recovered in the copy: prepared files are opened as immutable, and SQLite then reads the main
    file alone. The source is never written. Atomic: ``out`` exists whole or not.
    """
    source = source.resolve()  # log and journal lie beside the file itself
    temporary = out.with_name(f".{out.name}.{os.getpid()}.new")
    for leftover in (temporary, *(Path(f"{temporary}{side}") for side in (*SIDECARS, "-shm"))):
        leftover.unlink(missing_ok=True)
    if any(_size(Path(f"{source}{side}")) for side in SIDECARS):
        _recovered_copy(source, temporary)
    elif not cloned(source, temporary):
        if _size(source) <= COPIED_BYTES:
            shutil.copyfile(source, temporary)
        else:
            temporary.symlink_to(source)
    os.replace(temporary, out)


def cloned(source: Path, out: Path) -> bool:
    """Make ``out`` a clone of ``source``; False, and no file, where the file system has none."""
    try:
        with source.open("rb") as old, out.open("wb") as new:
            fcntl.ioctl(new.fileno(), FICLONE, old.fileno())
    except OSError:
        out.unlink(missing_ok=True)
        return False
    return True


def _recovered_copy(source: Path, out: Path) -> None:
    for side in ("", *SIDECARS):
        file = Path(f"{source}{side}")
        if file.exists() and not cloned(file, Path(f"{out}{side}")):
            shutil.copyfile(file, f"{out}{side}")
    connection = sqlite3.connect(out)
    try:
        connection.execute("PRAGMA journal_mode = DELETE")
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    finally:
        connection.close()


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


READ_WHOLE = 64 << 20  # question files up to this many bytes count by content, wherever they lie and whenever written
_DATABASE = tuple(f"{suffix}{side}" for suffix in SUFFIXES for side in ("", *SIDECARS))


def fingerprint(files: Iterable[Path], identity: str = "") -> str:
    """A digest of the files: by content where that is quick, by size and time for databases and very large files."""
    digest = hashlib.blake2b(identity.encode(), digest_size=16)
    for path in files:
        status = path.stat()
        digest.update(f"\n{path.name} {status.st_size} ".encode())
        if status.st_size <= READ_WHOLE and not path.name.endswith(_DATABASE):
            digest.update(path.read_bytes())
        else:
            digest.update(str(status.st_mtime_ns).encode())
    return digest.hexdigest()
