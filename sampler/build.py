"""Database build: a new SQLite file that holds exactly the chosen tables of another one.

The rows are copied by SQLite itself, table by table, from the source attached read-only, so values keep their
bytes and types, rows their rowids, and the time grows with the chosen tables, not with the file. CREATE statements
are the stored ones, word for word: describe_table shows them, so a REFERENCES clause may name a table that does not
exist here, as it may in any SQLite file. Views and triggers are left out.
"""

import contextlib
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path

from env.schema import fold_name
from sampler.pages import patched_copy
from sampler.source import Selection, SourceFile, attach, read_source, select_entries

_ROWID_NAMES = ("rowid", "oid", "_rowid_")
# Not about the statements of one schema but about the file or the disk: another way of copying meets them again.
_FATAL = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL}


def build_database(source: str | Path, tables: Sequence[str], out: str | Path) -> Path:
    """Write the database of ``tables``, in this order, to ``out``, which must not exist; returns ``out``.

    Each table comes with rows, indexes, declared keys, generated columns, AUTOINCREMENT counters and planner
    statistics. Raises FileNotFoundError and ValueError for a bad source, ValueError for an unknown table,
    FileExistsError for an existing ``out``.
    """
    file = read_source(source)
    target = Path(out)
    if target.exists():
        raise FileExistsError(f"{out} exists; an episode's database is always a new file")
    try:
        _copy_rows(file, tables, target)
    except _CannotCopyRows:
        # A schema that SQLite reads but would not write again (an unknown collation, text that is not UTF-8):
        # the pages are copied instead.
        target.unlink(missing_ok=True)
        patched_copy(file, tables, target)
    except BaseException:
        target.unlink(missing_ok=True)
        raise
    return target


class _CannotCopyRows(Exception):
    """The schema's own statements do not run here."""


def _copy_rows(file: SourceFile, tables: Sequence[str], target: Path) -> None:
    with contextlib.closing(sqlite3.connect(target.absolute().as_uri(), uri=True, isolation_level=None)) as connection:
        for setting in _settings(file):
            connection.execute(f"PRAGMA {setting}")
        attach(connection, file)
        with _readable(file):
            selection = select_entries(connection, file, tables)
        with _row_copy(file):
            _run(connection, [_statistics(selection), *_create(selection)])
            _run(connection, _fill(connection, selection))
            _run(connection, _counters(connection, selection))


def _settings(file: SourceFile) -> Iterator[str]:
    """Pragmas for a new file that is written once, and that give it the source's form."""
    yield f"page_size = {file.page_size}"
    yield f"encoding = '{file.encoding}'"
    yield f"user_version = {file.user_version}"
    yield from ("journal_mode = OFF", "synchronous = OFF", "locking_mode = EXCLUSIVE")
    yield from ("foreign_keys = OFF", "ignore_check_constraints = ON")


@contextlib.contextmanager
def _readable(file: SourceFile) -> Iterator[None]:
    try:
        yield
    except sqlite3.DatabaseError as error:
        raise ValueError(f"{file.path} cannot be read as a SQLite database: {error}") from error


@contextlib.contextmanager
def _row_copy(file: SourceFile) -> Iterator[None]:
    """Tell a schema whose statements do not run from a broken file or a full disk."""
    try:
        yield
    except sqlite3.Error as error:
        # The low byte is the primary code; a compile-time limit or a closed connection has no code at all.
        if getattr(error, "sqlite_errorcode", 0) & 0xFF in _FATAL:
            raise ValueError(f"no database can be built from {file.path}: {error}") from error
        raise _CannotCopyRows from error
    except ValueError as error:
        raise _CannotCopyRows from error  # a statement with a NUL or with bytes that are not UTF-8


def _run(connection: sqlite3.Connection, statements: Sequence[str]) -> None:
    # One script is one call: with 64 tables the calls would cost as much as the work.
    connection.executescript(";\n".join(["BEGIN", *statements, "COMMIT"]))


def _statistics(selection: Selection) -> str:
    return "ANALYZE main" if "sqlite_stat1" in selection.internal else ""


def _create(selection: Selection) -> list[str]:
    statements = []
    for table in selection.tables:
        statements.append(table.sql)
        statements += [index.sql for index in selection.indexes.get(fold_name(table.name), []) if index.sql]
    return [statement for statement in statements if statement]


def _fill(connection: sqlite3.Connection, selection: Selection) -> list[str]:
    """One INSERT a table; for a virtual table its shadow tables, emptied first, hold what it holds."""
    keyed = {
        name for _, name, _, _, without_rowid, _ in connection.execute("PRAGMA source.table_list") if without_rowid
    }
    statements = []
    for table in selection.tables:
        if not table.is_virtual:
            statements.append(_copy(connection, table.name, table.name in keyed))
        for shadow in selection.shadows.get(fold_name(table.name), []):
            statements.append(f"DELETE FROM main.{_quote(shadow.name)}")
            statements.append(_copy(connection, shadow.name, shadow.name in keyed))
    return statements


def _copy(connection: sqlite3.Connection, table: str, without_rowid: bool) -> str:
    """The INSERT that copies a table's rows with their rowids.

    The bare form lets SQLite copy whole records without decoding them, but it may number rows anew where the rowid
    is no column: that changes nothing if they are 1 … n; else rowids must be named.
    """
    quoted = _quote(table)
    rows = connection.execute(f"PRAGMA source.table_xinfo({quoted})").fetchall()
    columns = [name for _, name, _, _, _, _, hidden in rows if not hidden]
    keyed = [kind for _, _, kind, _, _, rank, _ in rows if rank]
    names = {fold_name(row[1]) for row in rows}
    rowid = next((name for name in _ROWID_NAMES if name not in names), None)
    if without_rowid or (len(keyed) == 1 and keyed[0].upper() == "INTEGER"):
        rowid = None  # there is none, or it is a column
    if len(columns) == len(rows) and (rowid is None or _counts_from_one(connection, quoted, rowid)):
        return f"INSERT INTO main.{quoted} SELECT * FROM source.{quoted}"
    listed = ", ".join([*([rowid] if rowid else []), *map(_quote, columns)])
    return f"INSERT INTO main.{quoted} ({listed}) SELECT {listed} FROM source.{quoted} NOT INDEXED"


def _counts_from_one(connection: sqlite3.Connection, quoted: str, rowid: str) -> bool:
    """Whether the rowids are 1 … n; only the ends and the count are looked up."""
    ends = f"(SELECT min({rowid}) FROM source.{quoted}), (SELECT max({rowid}) FROM source.{quoted})"
    count, low, high = connection.execute(f"SELECT count(*), {ends} FROM source.{quoted}").fetchone()
    return count == 0 or (low == 1 and high == count)


def _counters(connection: sqlite3.Connection, selection: Selection) -> list[str]:
    """AUTOINCREMENT counters and planner statistics of the chosen tables alone: the rest would name hidden ones."""
    made = {
        name
        for (name,) in connection.execute("SELECT name FROM main.sqlite_master WHERE name LIKE 'sqlite@_%' ESCAPE '@'")
    }
    names = ", ".join(_text(name) for name in selection.names)
    statements = []
    if "sqlite_sequence" in made & selection.internal:
        statements.append("DELETE FROM main.sqlite_sequence")
        statements.append(
            f"INSERT INTO main.sqlite_sequence SELECT name, seq FROM source.sqlite_sequence WHERE name IN ({names})"
        )
    if "sqlite_stat1" in made & selection.internal:
        statements.append(
            f"INSERT INTO main.sqlite_stat1 SELECT tbl, idx, stat FROM source.sqlite_stat1 WHERE tbl IN ({names})"
        )
    return statements


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
