"""Read-only URI of a database file: one rule for every connection that looks at a database."""

import os
from pathlib import Path
from urllib.parse import quote


def read_only_uri(database: str | Path) -> str:
    """SQLite URI of a file that is only read, whatever characters its name holds.

    Without locks or journals (``immutable``), so that a file in a read-only folder opens too. A file with a
    write-ahead log beside it is opened with the log: it holds part of the database (the last changes of a live
    one, all that the sampler changes in a large one), and ``immutable`` would leave it out.
    """
    path = os.fsencode(os.path.abspath(database))
    # readonly_shm: SQLite would otherwise create the log's shared memory, a file beside the database.
    how = "readonly_shm=1" if os.path.exists(path + b"-wal") else "immutable=1"
    return f"file://{quote(path)}?mode=ro&{how}"
