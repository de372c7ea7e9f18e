"""Read-only URI of a database file: one rule for every connection that looks at a database."""

import os
from pathlib import Path
from urllib.parse import quote

# The first bytes of a rollback journal that is in force; one that is kept after use begins with zeros.
JOURNAL = bytes.fromhex("d9d505f920a163d7")


def read_only_uri(database: str | Path) -> str:
    """SQLite URI of a file that is only read, whatever characters its name holds.

    Without locks or journals (``immutable``), so that a file in a read-only folder opens too. A file with a
    write-ahead log beside it is opened with the log: it holds part of the database (the last changes of a live
    one, all that the sampler changes in a large one), and ``immutable`` would leave it out.

    Raises ValueError where the last change was not completed: its rows would be read as if they were there.
    """
    path = os.fsencode(os.path.abspath(database))
    if holds_unfinished_change(path + b"-journal"):
        raise ValueError(
            f"{os.fspath(database)}-journal holds a change that a program did not complete: open the database once "
            "with sqlite3 and read from it, which takes the change back"
        )
    # readonly_shm: SQLite would otherwise create the log's shared memory, a file beside the database.
    how = "readonly_shm=1" if os.path.exists(path + b"-wal") else "immutable=1"
    return f"file://{quote(path)}?mode=ro&{how}"


def holds_unfinished_change(journal: bytes) -> bool:
    """Is this file a rollback journal that SQLite would play back?"""
    try:
        with open(journal, "rb") as file:
            return file.read(len(JOURNAL)) == JOURNAL
    except FileNotFoundError:
        return False
