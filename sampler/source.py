"""Source database: what a build has to know of the file that it takes tables from, read without changing it."""

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from env.schema import fold_name

MAGIC = b"SQLite format 3\0"
_ENCODINGS = {1: "UTF-8", 2: "UTF-16le", 3: "UTF-16be"}


@dataclass(frozen=True)
class SourceFile:
    """A database file's path and the fields of its 100-byte header (sqlite.org/fileformat.html)."""

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
    def encoding(self) -> str:
        """Text encoding as ``PRAGMA encoding`` names it."""
        return _ENCODINGS.get(int.from_bytes(self.header[56:60], "big"), "UTF-8")

    @property
    def user_version(self) -> int:
        """The user's own number, ``PRAGMA user_version``."""
        return int.from_bytes(self.header[60:64], "big", signed=True)

    @property
    def uri(self) -> str:
        """Opens the file read-only; immutable: no lock and no journal, so a read-only folder does too."""
        return f"{self.path.as_uri()}?mode=ro&immutable=1"


@dataclass(frozen=True)
class Entry:
    """A row of the source's ``sqlite_master``."""

    rowid: int
    type: str
    name: str
    table: str
    sql: str | None

    @property
    def is_virtual(self) -> bool:
        """Whether it is a virtual table, such as a full-text index."""
        return self.type == "table" and (self.sql or "").upper().startswith("CREATE VIRTUAL")


@dataclass(frozen=True)
class Selection:
    """The catalog entries that a build takes over."""

    tables: tuple[Entry, ...]
    indexes: dict[str, list[Entry]]
    shadows: dict[str, list[Entry]]
    internal: frozenset[str]

    @property
    def names(self) -> list[str]:
        """The chosen tables as declared, in the order asked for."""
        return [entry.name for entry in self.tables]


def read_source(path: str | Path) -> SourceFile:
    """Header of a database file that nobody writes.

    Raises FileNotFoundError where there is none, ValueError where it is no SQLite database or one whose last
    changes still lie in a journal beside it: opened as immutable it would show an older or a broken state.
    """
    file = Path(path).resolve()
    if not file.is_file():
        raise FileNotFoundError(f"no database file at {path}")
    with file.open("rb") as stream:
        header = stream.read(100)
    if len(header) < 100 or not header.startswith(MAGIC):
        raise ValueError(f"{path} is not a SQLite database: its first bytes are not {MAGIC!r}")
    for suffix in ("-wal", "-journal"):
        journal = Path(f"{file}{suffix}")
        if journal.exists() and journal.stat().st_size:
            raise ValueError(
                f"{path} has unsaved changes in {journal.name}: close the programs that use it, "
                f"then run: sqlite3 {file.name} 'PRAGMA journal_mode=DELETE'"
            )
    return SourceFile(file, header, file.stat().st_size)


def attach(connection: sqlite3.Connection, source: SourceFile) -> None:
    """Attach the file as ``source``; names that are not UTF-8 come back with surrogates."""
    connection.text_factory = lambda raw: raw.decode("utf-8", "surrogateescape")
    connection.execute("ATTACH ? AS source", (source.uri,))


def select_entries(connection: sqlite3.Connection, source: SourceFile, tables: Sequence[str]) -> Selection:
    """Catalog entries of the chosen tables: with their indexes and, for a virtual table, its shadow tables.

    Raises ValueError for a name that is no table of the file, or that comes twice.
    """
    rows = connection.execute("SELECT rowid, type, name, tbl_name, sql FROM source.sqlite_master ORDER BY rowid")
    catalog = [Entry(*row) for row in rows]
    known = {fold_name(entry.name): entry for entry in catalog if entry.type == "table"}
    chosen: dict[str, Entry] = {}
    for table in tables:
        folded = fold_name(table)
        if folded not in known or folded.startswith("sqlite_"):
            raise ValueError(f"{source.path} has no table {table!r}, so no database with it can be built")
        if folded in chosen:
            raise ValueError(f"table {table!r} is chosen twice for a database of {source.path}")
        chosen[folded] = known[folded]
    indexes: dict[str, list[Entry]] = {}
    for entry in catalog:
        if entry.type == "index":
            indexes.setdefault(fold_name(entry.table), []).append(entry)
    virtual = [name for name, entry in known.items() if entry.is_virtual]
    shadows = _shadows(connection, known, virtual) if virtual else {}
    internal = frozenset(name for name in known if name.startswith("sqlite_"))
    return Selection(tuple(chosen.values()), indexes, shadows, internal)


def _shadows(connection: sqlite3.Connection, known: dict[str, Entry], virtual: Sequence[str]) -> dict[str, list[Entry]]:
    """Shadow tables by virtual table: those that bear its name as a prefix, the longest such name."""
    listed = connection.execute("PRAGMA source.table_list").fetchall()
    shadows: dict[str, list[Entry]] = {}
    for _, name, kind, *_ in listed:
        owners = [owner for owner in virtual if fold_name(name).startswith(f"{owner}_")]
        if kind == "shadow" and owners:
            shadows.setdefault(max(owners, key=len), []).append(known[fold_name(name)])
    return {owner: sorted(entries, key=lambda entry: entry.rowid) for owner, entries in shadows.items()}
