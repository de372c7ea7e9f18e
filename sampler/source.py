"""Source database: what a build has to know of the file that it takes tables from, read without changing it."""

import errno
import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from operator import methodcaller
from pathlib import Path
from typing import NamedTuple

from sqale_grpo.env.connect import holds_changes, holds_unfinished_change
from sqale_grpo.env.fulltext import content_table
from sqale_grpo.env.text import fold_name

_MAGIC = b"SQLite format 3\0"
SHORTEST_LIMIT, LONGEST = 1_000_000, 2**31 - 1
_ENCODINGS = {2: "UTF-16le", 3: "UTF-16be"}


@dataclass(frozen=True)
class SourceFile:
    """A database file: its path, its 100-byte header (sqlite.org/fileformat.html) and its size in bytes."""

    path: Path
    header: bytes
    size: int

    @property
    def page_size(self) -> int:
        """Bytes a page."""
        stored = int.from_bytes(self.header[16:18], "big")
        return 65536 if stored == 1 else stored

    @property
    def pages(self) -> int:
        """Whole pages in the file."""
        return self.size // self.page_size

    @property
    def schema_version(self) -> int:
        """What ``PRAGMA schema_version`` gives."""
        return int.from_bytes(self.header[40:44], "big")

    @property
    def encoding(self) -> str:
        """Text encoding as ``PRAGMA encoding`` names it."""
        return _ENCODINGS.get(int.from_bytes(self.header[56:60], "big"), "UTF-8")


class Entry(NamedTuple):
    """A table or index in the source's catalog; ``root`` is its first page, 0 for a virtual table."""

    rowid: int
    name: str
    table: str
    root: int
    is_index: bool


@dataclass(frozen=True)
class Selection:
    """The catalog entries that a build takes over."""

    tables: tuple[Entry, ...]  # the chosen ones, in the order asked for
    parts: tuple[Entry, ...]  # these, each followed by its indexes and, if virtual, its shadow tables
    internal: frozenset[str]  # SQLite's own tables in the source
    views: tuple[int, ...] = ()  # rowids of the views that read chosen tables alone

    @property
    def stored(self) -> list[Entry]:
        """Tables with rows of their own: chosen and shadow tables, not virtual ones."""
        return [entry for entry in self.parts if entry.root and not entry.is_index]


def read_source(path: str | Path) -> SourceFile:
    """Header of a database file that nobody writes.

    Raises FileNotFoundError where there is none, ValueError where it is no SQLite database or one whose last
    changes still lie in a journal beside it: without them it would show an older or a broken state.
    """
    file = Path(path).resolve()
    if not file.is_file():
        raise FileNotFoundError(f"no database file at {path}")
    with file.open("rb") as stream:
        header = stream.read(100)
        size = stream.seek(0, 2)
    if len(header) < 100 or not header.startswith(_MAGIC):
        raise ValueError(f"{path} is not a SQLite database: its first bytes are not {_MAGIC!r}")
    name = os.fsencode(file)
    for suffix, unsaved in (("-wal", holds_changes(name)), ("-journal", holds_unfinished_change(name + b"-journal"))):
        if unsaved:
            journal = Path(f"{file}{suffix}")
            raise ValueError(
                f"{path} has unsaved changes in {journal.name}: close the programs that use it, "
                f"then run: sqlite3 {file.name} 'PRAGMA journal_mode=DELETE'"
            )
    return SourceFile(file, header, size)


class MissingExtension(ValueError):
    """SQLite lacks a collation or a function that the rows' indexes or generated columns need."""


@contextmanager
def open_source(file: SourceFile) -> Iterator[sqlite3.Connection]:
    """A connection in autocommit mode to which the file is attached as ``source``, read-only.

    Raises ValueError, from inside the block too, where SQLite finds the file broken.
    """
    with closing(sqlite3.connect(":memory:", isolation_level=None, uri=True)) as connection:
        # No stored value is longer than the file; what the file's own expressions make must not be either.
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, max(SHORTEST_LIMIT, min(file.size, LONGEST)))
        connection.text_factory = methodcaller("decode", "utf-8", "surrogateescape")
        # Databases of one connection share their encoding; rows arrive as they are, valid or not.
        for setting in (f"encoding = '{file.encoding}'", "foreign_keys = OFF", "ignore_check_constraints = ON"):
            connection.execute(f"PRAGMA {setting}")
        try:
            # No lock, no journal: there is none (see read_source), and a read-only folder will do.
            connection.execute("ATTACH ? AS source", (f"{file.path.as_uri()}?mode=ro&immutable=1",))
            yield connection
        except sqlite3.DatabaseError as error:
            if getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
                raise OSError(errno.ENOSPC, f"no room to build a database from {file.path}: {error}") from error
            missing = str(error).startswith(("no such collation sequence", "unknown function"))
            kind = MissingExtension if missing else ValueError
            raise kind(f"no database can be built from {file.path}: {error}") from error


def select_entries(connection: sqlite3.Connection, file: SourceFile, tables: Sequence[str]) -> Selection:
    """Catalog entries of the chosen tables, with their indexes and shadow tables.

    A full-text table over rows of a table that is not chosen comes without its shadow tables, which hold that one's
    words: it is there and cannot be read.

    Raises ValueError for a name that is no table of the file, or that comes twice.
    """
    catalog = _catalog(connection)
    known = {fold_name(entry.name): entry for entry in catalog if not entry.is_index}
    chosen: dict[str, Entry] = {}
    for name in tables:
        folded = fold_name(name)
        if folded not in known or folded.startswith("sqlite_"):
            raise ValueError(f"{file.path} has no table {name!r}, so no database with it can be built")
        if folded in chosen:
            raise ValueError(f"table {name!r} is chosen twice for a database of {file.path}")
        chosen[folded] = known[folded]
    indexes: dict[str, list[Entry]] = {}
    for entry in catalog:
        if entry.is_index:
            indexes.setdefault(fold_name(entry.table), []).append(entry)
    shadows = _shadows(connection, known)
    for hidden in _over_hidden_rows(connection, chosen):
        shadows.pop(hidden, None)
    parts: list[Entry] = []
    for folded, table in chosen.items():
        for entry in (table, *shadows.get(folded, [])):
            parts += [entry, *indexes.get(fold_name(entry.name), [])]
    internal = frozenset(name for name in known if name.startswith("sqlite_"))
    return Selection(tuple(chosen.values()), tuple(parts), internal)


def _catalog(connection: sqlite3.Connection) -> list[Entry]:
    rows = connection.execute(
        "SELECT rowid, name, tbl_name, rootpage, type = 'index' "
        "FROM source.sqlite_master WHERE type IN ('table', 'index') ORDER BY rowid"
    )
    return [Entry(*row) for row in rows]


def _over_hidden_rows(connection: sqlite3.Connection, chosen: dict[str, Entry]) -> list[str]:
    """The chosen full-text tables over rows of a table that is not chosen; names folded."""
    virtual = [entry for entry in chosen.values() if not entry.root]
    found = []
    for entry in virtual:
        query = "SELECT sql FROM source.sqlite_master WHERE rowid = ?"
        (ddl,) = connection.execute(query, (entry.rowid,)).fetchone()
        content = content_table(ddl or "")
        if content is not None and fold_name(content) not in chosen:
            found.append(fold_name(entry.name))
    return found


def _shadows(connection: sqlite3.Connection, known: dict[str, Entry]) -> dict[str, list[Entry]]:
    """Shadow tables by virtual table: those that bear its name as a prefix, the longest such name."""
    virtual = [name for name, entry in known.items() if not entry.root]
    if not virtual:
        return {}
    shadows: dict[str, list[Entry]] = {}
    for name, kind in connection.execute("SELECT name, type FROM pragma_table_list WHERE schema = 'source'"):
        owners = [owner for owner in virtual if fold_name(name).startswith(f"{owner}_")]
        if kind == "shadow" and owners:
            shadows.setdefault(max(owners, key=len), []).append(known[fold_name(name)])
    return {owner: sorted(entries, key=lambda entry: entry.rowid) for owner, entries in shadows.items()}
