"""Database build: a new SQLite file that holds exactly the chosen tables of another one.

The new file gets the catalog entries of the chosen tables and an empty root page for each; then SQLite copies the rows,
table by table, from the source attached read-only. So values keep their bytes and types, rows their rowids, and the
time grows with the chosen tables, not with the file. CREATE statements are the stored ones, word for word:
describe_table shows them, so a REFERENCES clause may name a table that does not exist here, as it may in any SQLite
file. Views come with the tables that they read (``sampler.views``); triggers are left out.
"""

import json
import os
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from sqale_grpo.env.text import fold_name, quote_name
from sqale_grpo.sampler.catalog import INDEX_LEAF, TABLE_LEAF, blank_file, write_catalog
from sqale_grpo.sampler.source import Selection, SourceFile, open_source, select_entries
from sqale_grpo.sampler.views import with_views

_ROWID_NAMES = ("rowid", "oid", "_rowid_")
# First byte of a b-tree's root page to that of an empty one: interior or leaf page of an index or of a table.
_EMPTY_LEAVES = {2: INDEX_LEAF, 10: INDEX_LEAF, 5: TABLE_LEAF, 13: TABLE_LEAF}


def build_from(file: SourceFile, tables: Sequence[str], target: Path) -> None:
    """Write the database of ``tables`` to ``target``, whatever was there; a failure may leave a part of it."""
    with open_source(file) as connection:
        selection = with_views(select_entries(connection, file, tables), file)
        roots = [entry.root for entry in selection.parts if entry.root]
        kinds = _root_kinds(file, roots)
        blank_file(target, file, 1 + len(roots), kinds)
        write_catalog(connection, target, selection, {old: new for new, old in enumerate(roots, start=2)})
        trees = {root for root, kind in zip(roots, kinds, strict=True) if kind == INDEX_LEAF}
        for statement in [*_copies(connection, selection, trees), "COMMIT"]:
            connection.execute(statement)


def _root_kinds(file: SourceFile, roots: Sequence[int]) -> list[int]:
    size = file.page_size
    with file.path.open("rb") as stream:
        handle = stream.fileno()
        first_bytes = [os.pread(handle, 1, (root - 1) * size) for root in roots]
    kinds = [_EMPTY_LEAVES.get(int.from_bytes(byte, "big"), 0) for byte in first_bytes]
    if not all(kinds):
        raise ValueError(f"{file.path} is malformed: page {roots[kinds.index(0)]} is the root of no table or index")
    return kinds


def _copies(connection: sqlite3.Connection, selection: Selection, without_rowid: set[int]) -> Iterator[str]:
    """One INSERT a table.

    The bare form lets SQLite copy whole records without decoding them. Where it decodes them after all (a CHECK), it
    may number the rows anew: that changes nothing if their rowid is a column or if they are 1 … n, else rowids must be
    named. Generated columns cannot be inserted, so the others must be named. NOT INDEXED: in the order of the rowids.
    """
    keyed, generated = _special_columns(connection, selection)
    for table in selection.stored:
        quoted = quote_name(table.name)
        numbered = table.name in keyed or table.root in without_rowid or _counts_from_one(connection, quoted)
        target, values = "", "*"
        if not numbered or table.name in generated:
            values = _columns(connection, quoted, with_rowid=not numbered)
            target = f" ({values})"
        yield f"INSERT INTO episode.{quoted}{target} SELECT {values} FROM source.{quoted} NOT INDEXED"


def _special_columns(connection: sqlite3.Connection, selection: Selection) -> tuple[set[str], set[str]]:
    """Tables whose one key column is declared INTEGER, so that it is the rowid: most; and those that generate columns.

    An INTEGER PRIMARY KEY DESC is not the rowid, an old mistake of SQLite's; it has an index of its own.
    """
    rows = connection.execute(
        "SELECT value, c.pk, c.type = 'INTEGER' COLLATE NOCASE "
        "FROM json_each(?), pragma_table_xinfo(value, 'source') AS c "
        "WHERE c.pk OR c.hidden > 1",
        (json.dumps([table.name for table in selection.stored]),),
    ).fetchall()
    keys = Counter(name for name, rank, _ in rows if rank)
    indexed = {part.table for part in selection.parts if part.is_index and part.name.startswith("sqlite_autoindex_")}
    keyed = {name for name, rank, integer in rows if rank and integer and keys[name] == 1 and name not in indexed}
    return keyed, {name for name, rank, _ in rows if not rank}


def _counts_from_one(connection: sqlite3.Connection, quoted: str) -> bool:
    """Whether the rowids are 1 … n; they might as well be where columns bear all of a rowid's names."""
    names = _rowid_names(row[1] for row in connection.execute(f"PRAGMA source.table_xinfo({quoted})"))
    if not names:
        return True
    ends = f"(SELECT min({names[0]}) FROM source.{quoted}), (SELECT max({names[0]}) FROM source.{quoted})"
    count, low, high = connection.execute(f"SELECT count(*), {ends} FROM source.{quoted}").fetchone()
    return count == 0 or (low == 1 and high == count)


def _columns(connection: sqlite3.Connection, quoted: str, *, with_rowid: bool) -> str:
    """Columns but generated ones, and the rowid, unless columns bear all of its names, so that no query can tell."""
    rows = connection.execute(f"PRAGMA source.table_xinfo({quoted})").fetchall()
    rowid = _rowid_names(row[1] for row in rows)[:1] if with_rowid else []
    return ", ".join([*rowid, *(quote_name(name) for _, name, _, _, _, _, hidden in rows if not hidden)])


def _rowid_names(columns: Iterable[str]) -> list[str]:
    """The names by which a query reaches the rowid: those that no column bears."""
    taken = set(map(fold_name, columns))
    return [name for name in _ROWID_NAMES if name not in taken]
