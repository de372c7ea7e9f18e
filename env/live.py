"""A connection to a file that other programs may write: every statement sees one moment of it, or says why not.

Statements take SQLite's shared locks, so a writer waits for them and they for a writer. A file in write-ahead mode that
nobody has open has no log, and SQLite would have to create one to take a lock there: such a file is read without locks,
and read again where it changed meanwhile.
"""

import os
import sqlite3
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote_to_bytes

from sqale_grpo.env.catalog import catalog_reply
from sqale_grpo.env.connect import UNFINISHED, holds_changes
from sqale_grpo.env.query import Connection, Reply

LOCK_SECONDS = 5.0  # how long to wait for a writer to finish
TRIES = 3
CHANGED = ("machine", "the database was changed while it was read, each time", None, None)


class LiveConnection:
    """A ``Connection`` that is opened anew when the file was exchanged, or changed its mode or its schema."""

    def __init__(self, uri: str, limits: dict[str, Any]) -> None:
        self.uri, self.limits = uri, limits
        self.path = unquote_to_bytes(uri.partition("?")[0].removeprefix("file://"))
        self.open()

    def open(self) -> None:
        """Open the file as it is now; sqlite3.Error where that cannot be."""
        self.state = self.look()
        self.locks = not self._lacks_log()
        try:
            uri = self.uri if self.locks else f"{self.uri}&immutable=1"
            self.inner = Connection(uri, self.limits, LOCK_SECONDS)
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode == sqlite3.SQLITE_READONLY_ROLLBACK:
                raise sqlite3.OperationalError(f"{os.fsdecode(self.path)}-journal {UNFINISHED}") from error
            raise

    def _lacks_log(self) -> bool:
        """Is it in write-ahead mode (version 2 of the format) without a log? Opening it would create one beside it."""
        if os.path.exists(self.path + b"-wal"):
            return False
        with open(self.path, "rb") as file:
            return file.read(20)[18:] == b"\x02\x02"

    @property
    def sqlite(self) -> sqlite3.Connection:
        """The connection of this moment."""
        return self.inner.sqlite

    @property
    def steps(self) -> int:
        """Of the last statement."""
        return self.inner.steps

    def look(self) -> tuple:
        """What is different when the file is another, or was written, or has a log."""
        stat = os.stat(self.path)
        return stat.st_ino, holds_changes(self.path), stat.st_mtime_ns, stat.st_size

    def run(self, *query: Any) -> Reply:
        """As of ``Connection.run``."""
        return self._current(lambda: self.inner.run(*query))

    def catalog(self) -> Reply:
        """As of ``catalog_reply``."""
        return self._current(lambda: catalog_reply(self.inner))

    def _current(self, ask: Callable[[], Reply]) -> Reply:
        """The answer of one moment."""
        for _ in range(TRIES):
            self.renew()
            answer = ask()
            if not self._lacks_log() if self.locks else self.look() == self.state:
                return answer
        return CHANGED

    def renew(self) -> None:
        """Open the file anew where it must be."""
        now = self.look()
        same = now == self.state if not self.locks else now[:2] == self.state[:2] and not self._lacks_log()
        if not same or self._other_schema():
            self.inner.sqlite.close()
            self.open()

    def _other_schema(self) -> bool:
        """Was a table made or dropped? The authorizer allows those that were there."""
        return self.locks and self.inner.schema_version() != self.inner.known_schema
