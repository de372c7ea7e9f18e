"""How a database file is opened to be read: one rule for every connection that looks at a database, one oldest SQLite.

A file of ours, which nobody writes, is opened as immutable: no locks, no look at the log. Any other is a live one: a
program may write it at any moment, so its connections take SQLite's shared locks.
"""

import os
from pathlib import Path
from urllib.parse import quote

from sqale_grpo.env.errors import UserError

OLDEST_SQLITE = (3, 37, 0)
# The first bytes of a rollback journal that is in force; one that is kept after use begins with zeros.
JOURNAL = bytes.fromhex("d9d505f920a163d7")
UNFINISHED = (
    "holds a change that a program did not complete: open the database once with sqlite3 and read from it, which takes "
    "the change back"
)


def check_sqlite(version: tuple[int, ...]) -> None:
    """Raises UserError for a library that is older than the schema functions and STRICT tables."""
    if version < OLDEST_SQLITE:
        found, needed = (".".join(map(str, each)) for each in (version, OLDEST_SQLITE))
        raise UserError(
            f"SQLite {found} is too old: {needed} or newer is needed; use a Python that is linked to one, or put a "
            "newer libsqlite3 on LD_LIBRARY_PATH"
        )


def real_path(database: str | Path) -> Path:
    """The file itself: SQLite looks for log and journal beside it, not beside a link to it."""
    return Path(os.path.realpath(database))


def read_only_uri(database: str | Path) -> str:
    """SQLite URI of a file that nobody writes while it is open, whatever characters its name holds.

    Without locks or journals (``immutable``), so that a file in a read-only folder opens too. A file with a
    write-ahead log beside it is opened with the log: it holds part of the database (the last changes of a live
    one, all that the sampler changes in a large one), and ``immutable`` would leave it out.

    Raises ValueError where the last change was not completed: its rows would be read as if they were there.
    """
    path = os.fsencode(real_path(database))
    if holds_unfinished_change(path + b"-journal"):
        raise ValueError(f"{os.fspath(database)}-journal {UNFINISHED}")
    # readonly_shm: SQLite would otherwise create the log's shared memory, a file beside the database.
    return f"{_file_uri(path)}&{'readonly_shm=1' if holds_changes(path) else 'immutable=1'}"


def live_uri(database: str | Path) -> str:
    """SQLite URI of a file that other programs may write meanwhile; read through ``env.live``."""
    return f"{_file_uri(os.fsencode(real_path(database)))}&readonly_shm=1"


def _file_uri(path: bytes) -> str:
    return f"file://{quote(path)}?mode=ro"


def holds_changes(path: bytes) -> bool:
    """Has this database a write-ahead log that is not empty?"""
    try:
        return os.stat(path + b"-wal").st_size > 0
    except OSError:
        return False


def holds_unfinished_change(journal: bytes) -> bool:
    """Is this file a rollback journal that SQLite would play back?"""
    try:
        with open(journal, "rb") as file:
            return file.read(len(JOURNAL)) == JOURNAL
    except FileNotFoundError:
        return False
