"""Database build: a new SQLite file that holds exactly the chosen tables of another one.

The new file gets the catalog entries of the chosen tables and an empty root page for each; then SQLite copies the rows,
table by table, from the source attached read-only. So values keep their bytes and types, rows their rowids, and the
time grows with the chosen tables, not with the file. CREATE statements are the stored ones, word for word:
describe_table shows them, so a REFERENCES clause may name a table that does not exist here, as it may in any SQLite
file. Views and triggers are left out.
"""

import json
import os
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path

from env.schema import fold_name
from sampler.catalog import INDEX_LEAF, TABLE_LEAF, attach_episode, blank_file, write_catalog
from sampler.source import Entry, SourceFile, open_source, read_source, select_entries

_ROWID_NAMES = ("rowid", "oid", "_rowid_")
# First byte of a b-tree's root page to that of an empty one: interior or leaf page of an index or of a table.
_EMPTY_LEAVES = {2: INDEX_LEAF, 10: INDEX_LEAF, 5: TABLE_LEAF, 13: TABLE_LEAF}


def build_database(source: str | Path, tables: Sequence[str], out: str | Path) -> Path:
    """Write the database of ``tables``, in this order, to ``out``, which must not exist; returns ``out``.

    Each table comes with rows, indexes, declared keys, generated columns, AUTOINCREMENT counter and planner
    statistics. Raises FileNotFoundError and ValueError for a bad source, ValueError for an unknown table,
    FileExistsError for an existing ``out``.
    """
    file = read_source(source)
    target = Path(out)
    if target.exists():
        raise FileExistsError(f"{out} exists; an episode's database is always a new file")
    try:
        _build(file, tables, target)
    except BaseException:
        target.unlink(missing_ok=True)
        raise
    return target


def _build(file: SourceFile, tables: Sequence[str], target: Path) -> None:
    with open_source(file) as connection:
        selection = select_entries(connection, file, tables)
        stored = [entry.root for entry in selection.parts if entry.root]
        blank_file(target, file, 1 + len(stored), _root_kinds(file, stored))
        write_catalog(connection, target, selection, {old: new for new, old in enumerate(stored, start=2)})
        attach_episode(connection, target)
        statements = _copies(connection, selection.stored)
        # One script is one call: with 64 tables the calls would cost as much as the work.
        connection.executescript(";\n".join(["BEGIN", *statements, "COMMIT"]))


def _root_kinds(file: SourceFile, roots: Sequence[int]) -> list[int]:
    with file.path.open("rb") as stream:
        handle = stream.fileno()
        first_bytes = [os.pread(handle, 1, (root - 1) * file.page_size) for root in roots]
    kinds = [_EMPTY_LEAVES.get(int.from_bytes(byte, "big"), 0) for byte in first_bytes]
    if not all(kinds):
        raise ValueError(f"{file.path} is malformed: page {roots[kinds.index(0)]} is the root of no table or index")
    return kinds


def _copies(connection: sqlite3.Connection, tables: Sequence[Entry]) -> Iterator[str]:
    """One INSERT a table.

    The bare form lets SQLite copy whole records without decoding them, but it may number rows anew where the rowid
    is no column. That changes nothing if they are 1 … n; else rowids must be named.
    """
    plain = _with_plain_rowids(connection, tables)
    for table in tables:
        quoted = _quote(table.name)
        columns = [] if table.name in plain else _columns(connection, quoted)
        if columns:
            listed = ", ".join(columns)
            yield f"INSERT INTO episode.{quoted} ({listed}) SELECT {listed} FROM source.{quoted} NOT INDEXED"
        else:
            yield f"INSERT INTO episode.{quoted} SELECT * FROM source.{quoted}"


def _with_plain_rowids(connection: sqlite3.Connection, tables: Sequence[Entry]) -> set[str]:
    """Tables without generated columns whose one key column is declared INTEGER: nearly all, told by one query."""
    rows = connection.execute(
        "SELECT value FROM json_each(?), pragma_table_xinfo(value, 'source') AS c GROUP BY value "
        "HAVING max(c.hidden) = 0 AND sum(c.pk > 0) = 1 AND max(c.pk > 0 AND c.type = 'INTEGER' COLLATE NOCASE)",
        (json.dumps([table.name for table in tables]),),
    )
    return {name for (name,) in rows}


def _columns(connection: sqlite3.Connection, quoted: str) -> list[str]:
    """What the copy of a table has to name: rowid and columns but generated ones; empty if the bare form will do."""
    rows = connection.execute(f"PRAGMA source.table_xinfo({quoted})").fetchall()
    columns = [_quote(name) for _, name, _, _, _, _, hidden in rows if not hidden]
    rowid = _hidden_rowid(connection, quoted, {fold_name(row[1]) for row in rows})
    if len(columns) == len(rows) and (rowid is None or _counts_from_one(connection, quoted, rowid)):
        return []
    return [rowid, *columns] if rowid else columns


def _hidden_rowid(connection: sqlite3.Connection, quoted: str, columns: set[str]) -> str | None:
    """A name of the table's rowid, or None where no query can read it: it has none, or columns bear its names."""
    name = next((name for name in _ROWID_NAMES if name not in columns), None)
    try:
        connection.execute(f"SELECT {name} FROM source.{quoted} LIMIT 0")
    except sqlite3.OperationalError:
        return None  # WITHOUT ROWID
    return name


def _counts_from_one(connection: sqlite3.Connection, quoted: str, rowid: str) -> bool:
    """Whether the rowids are 1 … n."""
    ends = f"(SELECT min({rowid}) FROM source.{quoted}), (SELECT max({rowid}) FROM source.{quoted})"
    count, low, high = connection.execute(f"SELECT count(*), {ends} FROM source.{quoted}").fetchone()
    return count == 0 or (low == 1 and high == count)


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
