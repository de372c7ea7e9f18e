"""Catalog: a database file whose catalog has the chosen tables alone, written by SQLite row for row.

A SQLite file finds every table and index through its catalog, ``sqlite_master``, whose root is page 1: an entry holds
the stored CREATE statement and the number of the first page. Entries are copied from catalog to catalog inside
SQLite, no statement is run again: so stored statements stay word for word, and a schema that SQLite reads but would
not accept anew (an unknown collation, names that are not UTF-8) is as good as any.
"""

import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path

from sampler.source import Selection, SourceFile

TABLE_LEAF, INDEX_LEAF = 13, 10


def blank_file(path: Path, file: SourceFile, pages: int, roots: Sequence[int] = ()) -> None:
    """A file of ``pages`` pages in the source's format, with an empty catalog.

    Page 2 and on are empty leaves of the kinds ``roots``; the other pages are holes, which take no space.
    """
    header = bytearray(file.header)
    header[18:20] = b"\x01\x01"  # written with a rollback journal, whatever the source's mode
    header[28:32] = pages.to_bytes(4, "big")
    header[32:40] = bytes(8)  # no free pages: new ones come behind the last
    header[52:56] = header[64:68] = bytes(4)  # no auto-vacuum: its pointer pages would have to be kept up
    header[92:96] = header[24:28]  # marks the page count above as valid
    usable = (file.page_size - header[20]) & 0xFFFF
    leaves = [bytes([kind, 0, 0, 0, 0]) + usable.to_bytes(2, "big") + b"\0" for kind in (TABLE_LEAF, *roots)]
    with path.open("wb") as stream:
        stream.write((bytes(header) + leaves[0]).ljust(file.page_size, b"\0"))
        stream.writelines(leaf.ljust(file.page_size, b"\0") for leaf in leaves[1:])
        stream.truncate(pages * file.page_size)


def attach_episode(connection: sqlite3.Connection, path: Path) -> None:
    """Attach the new file as ``episode``, for writing once and without a way back."""
    connection.execute("ATTACH ? AS episode", (path.absolute().as_uri(),))
    for setting in ("journal_mode = OFF", "synchronous = OFF", "locking_mode = EXCLUSIVE"):
        connection.execute(f"PRAGMA episode.{setting}")


def write_catalog(
    connection: sqlite3.Connection, path: Path, selection: Selection, roots: Mapping[int, int] | None = None
) -> None:
    """Give the blank file the selection's entries, in order; ``roots`` says where a root page lies now."""
    attach_episode(connection, path)
    connection.execute("PRAGMA writable_schema = ON")
    connection.execute("BEGIN")
    _write_internal(connection, selection)
    connection.executemany(
        "INSERT INTO episode.sqlite_master SELECT type, name, tbl_name, ?, sql "
        "FROM source.sqlite_master WHERE rowid = ?",
        [(roots.get(entry.root, 0) if roots else entry.root, entry.rowid) for entry in selection.parts],
    )
    connection.execute("COMMIT")
    connection.execute("PRAGMA writable_schema = OFF")
    # The connection has read the empty catalog; attached again, it reads the new one.
    connection.execute("DETACH episode")


def _write_internal(connection: sqlite3.Connection, selection: Selection) -> None:
    """SQLite's own tables of AUTOINCREMENT counters and planner statistics, for the chosen tables alone.

    They are made anew: the source's would name hidden tables.
    """
    rowids = [(table.rowid,) for table in selection.tables]
    if "sqlite_sequence" in selection.internal and any(table.counts for table in selection.tables):
        connection.execute("CREATE TABLE episode.made (id INTEGER PRIMARY KEY AUTOINCREMENT)")
        connection.execute("DROP TABLE episode.made")
        connection.executemany(
            "INSERT INTO episode.sqlite_sequence SELECT s.name, s.seq FROM source.sqlite_sequence s "
            "JOIN source.sqlite_master m ON m.name = s.name WHERE m.rowid = ?",
            rowids,
        )
    if "sqlite_stat1" in selection.internal:
        connection.execute("ANALYZE episode")
        connection.executemany(
            "INSERT INTO episode.sqlite_stat1 SELECT s.tbl, s.idx, s.stat FROM source.sqlite_stat1 s "
            "JOIN source.sqlite_master m ON m.name = s.tbl WHERE m.rowid = ?",
            rowids,
        )
