"""Catalog: a database file whose catalog has the chosen tables alone, written by SQLite row for row.

A SQLite file finds every table and index through its catalog, ``sqlite_master``, whose root is page 1: an entry holds
the stored CREATE statement and the number of the first page. Entries are copied from catalog to catalog inside
SQLite, no statement is run again: so stored statements stay word for word, and a schema that SQLite reads but would
not accept anew (an unknown collation, names that are not UTF-8) is as good as any.
"""

import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path

from sqale_grpo.sampler.source import Selection, SourceFile

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
    empty = b"\0\0\0\0" + usable.to_bytes(2, "big") + b"\0"
    content = bytearray((1 + len(roots)) * file.page_size)
    content[:108] = header + bytes([TABLE_LEAF]) + empty
    for start, kind in zip(range(file.page_size, len(content), file.page_size), roots, strict=True):
        content[start : start + 8] = bytes([kind]) + empty
    with path.open("wb") as stream:
        stream.write(content)
        stream.truncate(pages * file.page_size)


def write_catalog(
    connection: sqlite3.Connection, path: Path, selection: Selection, roots: Mapping[int, int] | None = None
) -> None:
    """Attach the blank file as ``episode`` and give it the selection's entries, in order.

    ``roots`` says where a root page lies now, if not where it did. The transaction that this begins is left to the
    caller to fill and to commit.
    """
    connection.execute("ATTACH ? AS episode", (path.absolute().as_uri(),))
    # The file is written once and has no earlier state to go back to.
    settings = ("episode.journal_mode = OFF", "episode.synchronous = OFF", "writable_schema = ON")
    connection.executescript("".join(f"PRAGMA {setting};" for setting in settings) + "BEGIN")
    _write_internal(connection, selection)
    connection.executemany(
        "INSERT INTO episode.sqlite_master SELECT type, name, tbl_name, ?, sql "
        "FROM source.sqlite_master WHERE rowid = ?",
        [(roots.get(entry.root, 0) if roots else entry.root, entry.rowid) for entry in selection.parts],
    )
    connection.executemany(
        "INSERT INTO episode.sqlite_master SELECT type, name, tbl_name, 0, sql "
        "FROM source.sqlite_master WHERE rowid = ?",
        [(rowid,) for rowid in selection.views],
    )
    # A new version of the schema makes this connection, too, read the catalog again.
    (version,) = connection.execute("PRAGMA episode.schema_version").fetchone()
    connection.execute(f"PRAGMA episode.schema_version = {version + 1}")
    connection.execute("PRAGMA writable_schema = OFF")


def _write_internal(connection: sqlite3.Connection, selection: Selection) -> None:
    """SQLite's own tables of AUTOINCREMENT counters and planner statistics, for the chosen tables alone.

    They are made anew: the source's would name hidden tables.
    """
    rowids = [(table.rowid,) for table in selection.tables]
    if "sqlite_sequence" in selection.internal and _any_counts(connection, rowids):
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


def _any_counts(connection: sqlite3.Connection, rowids: Sequence[tuple[int]]) -> bool:
    statement = "SELECT 1 FROM source.sqlite_master WHERE rowid = ? AND sql LIKE '%AUTOINCREMENT%'"
    return any(connection.execute(statement, rowid).fetchone() for rowid in rowids)
