"""Page patch: the few pages by which a database file comes to hold only the chosen tables.

A SQLite file finds every table through the catalog, whose root is page 1. A new page 1 and new catalog pages behind
the last page, with the chosen entries alone, make all other tables unreachable, and no other page changes. SQLite
writes these pages itself: into a sparse file of the source's length with an empty catalog.
"""

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from env.schema import fold_name
from sampler.source import Selection, SourceFile, attach, select_entries

_LEAF_PAGE = 13


def patch_pages(file: SourceFile, tables: Sequence[str]) -> dict[int, bytes]:
    """Page number (from 1) to content: page 1 and all pages behind the source's last one."""
    with _skeleton(file) as path:
        try:
            _write_catalog(file, tables, path)
        except sqlite3.DatabaseError as error:
            raise ValueError(f"no database can be built from {file.path}: {error}") from error
        with path.open("rb") as stream:
            first = stream.read(file.page_size)
            stream.seek(file.pages * file.page_size)
            rest = stream.read()
    numbers = range(file.pages + 1, file.pages + 1 + len(rest) // file.page_size)
    parts = (rest[start : start + file.page_size] for start in range(0, len(rest), file.page_size))
    return {1: first, **dict(zip(numbers, parts, strict=True))}


def patched_copy(file: SourceFile, tables: Sequence[str], out: Path) -> None:
    """A whole copy of the file with the patch applied: what any schema allows, at the price of the file's size."""
    pages = patch_pages(file, tables)
    shutil.copyfile(file.path, out)
    with out.open("r+b") as stream:
        stream.truncate(file.pages * file.page_size)
        for number, page in pages.items():
            stream.seek((number - 1) * file.page_size)
            stream.write(page)


@contextmanager
def _skeleton(file: SourceFile) -> Iterator[Path]:
    """A sparse file of the source's length with the source's header and an empty catalog."""
    handle, name = tempfile.mkstemp(suffix=".sqlite")
    with os.fdopen(handle, "wb") as stream:
        stream.write(_empty_first_page(file))
        stream.truncate(file.pages * file.page_size)
    try:
        yield Path(name)
    finally:
        os.unlink(name)


def _empty_first_page(file: SourceFile) -> bytes:
    header = bytearray(file.header)
    header[18:20] = b"\x01\x01"  # written with a rollback journal, whatever the source's mode
    header[28:32] = file.pages.to_bytes(4, "big")
    header[32:40] = bytes(8)  # no free pages: new ones come behind the last, where no page of the source lies
    header[52:56] = header[64:68] = bytes(4)  # no auto-vacuum: its pointer pages would have to be kept up
    header[92:96] = header[24:28]  # marks the page count above as valid
    usable = file.page_size - header[20]
    leaf = bytes([_LEAF_PAGE, 0, 0, 0, 0]) + (usable & 0xFFFF).to_bytes(2, "big") + b"\0"
    return (bytes(header) + leaf).ljust(file.page_size, b"\0")


def _write_catalog(file: SourceFile, tables: Sequence[str], path: Path) -> None:
    with closing(sqlite3.connect(path.as_uri(), uri=True, isolation_level=None)) as connection:
        for setting in ("journal_mode = OFF", "synchronous = OFF", "writable_schema = ON"):
            connection.execute(f"PRAGMA {setting}")
        attach(connection, file)
        selection = select_entries(connection, file, tables)
        connection.execute("BEGIN")
        _write_internal(connection, selection)
        # Rows go from catalog to catalog inside SQLite, root pages and all: a name need not be UTF-8.
        connection.executemany(
            "INSERT INTO main.sqlite_master SELECT type, name, tbl_name, rootpage, sql "
            "FROM source.sqlite_master WHERE rowid = ?",
            [(rowid,) for rowid in _entries(selection)],
        )
        connection.execute("COMMIT")


def _entries(selection: Selection) -> Iterator[int]:
    """Catalog rowids in the order of the new catalog: each table before its indexes and shadow tables."""
    for table in selection.tables:
        shadows = selection.shadows.get(fold_name(table.name), [])
        for entry in (table, *shadows):
            yield entry.rowid
            yield from (index.rowid for index in selection.indexes.get(fold_name(entry.name), []))


def _write_internal(connection: sqlite3.Connection, selection: Selection) -> None:
    """SQLite's own tables of counters and statistics, made anew: the source's would name hidden tables."""
    rowids = [(table.rowid,) for table in selection.tables]
    if "sqlite_sequence" in selection.internal and any(
        "AUTOINCREMENT" in (t.sql or "").upper() for t in selection.tables
    ):
        connection.execute("CREATE TABLE made (id INTEGER PRIMARY KEY AUTOINCREMENT)")
        connection.execute("DROP TABLE made")
        connection.executemany(
            "INSERT INTO main.sqlite_sequence SELECT s.name, s.seq FROM source.sqlite_sequence s "
            "JOIN source.sqlite_master m ON m.name = s.name WHERE m.rowid = ?",
            rowids,
        )
    if "sqlite_stat1" in selection.internal:
        connection.execute("ANALYZE main")
        connection.executemany(
            "INSERT INTO main.sqlite_stat1 SELECT s.tbl, s.idx, s.stat FROM source.sqlite_stat1 s "
            "JOIN source.sqlite_master m ON m.name = s.tbl WHERE m.rowid = ?",
            rowids,
        )
