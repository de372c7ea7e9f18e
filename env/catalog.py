"""What a database file says of its schema, read in a worker: a file can make this long, and may be made to.

Names come back as text, bytes that are not UTF-8 as surrogates; what they mean is ``env.schema``'s business.
"""

import sqlite3
from time import monotonic

from sqale_grpo.env.query import LONGEST_STORED, Connection, Reply, decode
from sqale_grpo.env.verdict import verdict

# Kind (table, view), name, CREATE statement, rows of table_xinfo, rows of foreign_key_list.
Entry = tuple[str, str, str, list[tuple], list[tuple]]
STORED = "SELECT type, name, coalesce(sql, '') FROM main.sqlite_master WHERE type IN ('table', 'view') ORDER BY rowid"
# A trigger may bear its table's name, hence the type; SQLite's own tables are sqlite_*.
VIEW_SECONDS = 0.5  # for the columns of all views
INTERNAL = "sqlite_"
MALFORMED = "database disk image is malformed"  # SQLite's words where it is the file
ENCODINGS = {"UTF-16le": "utf-16-le", "UTF-16be": "utf-16-be"}


def catalog_reply(connection: Connection) -> Reply:
    """("", entries, None, None), or what ``Connection.run`` gives for a failure."""
    connection.start()
    connection.sqlite.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST_STORED)
    try:
        with connection.trusted():
            seconds = min(VIEW_SECONDS, connection.limits["seconds"] / 4)
            return "", read_catalog(connection.sqlite, connection.shadow, seconds), None, None
    except (sqlite3.Error, UnicodeError, MemoryError) as error:
        return (*verdict(error, connection.limits["seconds"]), None, None)
    finally:
        connection.sqlite.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, connection.limits["length"])


def read_catalog(connection: sqlite3.Connection, shadow: set[str], view_seconds: float) -> list[Entry]:
    """The tables and views of ``main`` in creation order, without SQLite's own tables and the ``shadow`` ones.

    A view's columns cost as much as the views inside it, and doubling ones cost without bound: views that are
    reached after ``view_seconds`` are given without columns, as are those that SQLite cannot resolve.
    """
    factory = connection.text_factory
    connection.text_factory = decode
    try:
        (encoding,) = connection.execute("PRAGMA encoding").fetchone()
        stored = [row for row in connection.execute(STORED).fetchall() if _is_users(row[1]) and row[1] not in shadow]
        rows = {name: _table(connection, name, encoding) for kind, name, _ in stored if kind == "table"}
        ends = monotonic() + view_seconds
        for kind, name, _ in stored:
            if kind == "view":
                rows[name] = (_columns(connection, name, encoding) if monotonic() < ends else [], [])
        return [(kind, name, ddl, *rows[name]) for kind, name, ddl in stored]
    finally:
        connection.text_factory = factory


def _is_users(name: str) -> bool:
    return name[: len(INTERNAL)].lower() != INTERNAL


def _table(connection: sqlite3.Connection, name: str, encoding: str) -> tuple[list[tuple], list[tuple]]:
    return _columns(connection, name, encoding), _offered(connection, "foreign_key_list", name, encoding)


def _columns(connection: sqlite3.Connection, name: str, encoding: str) -> list[tuple]:
    """By ``table_xinfo``: ``table_info`` leaves out generated columns."""
    return _offered(connection, "table_xinfo", name, encoding)


def _offered(connection: sqlite3.Connection, pragma: str, name: str, encoding: str) -> list[tuple]:
    """The rows of a pragma on one table; none of a table that cannot be used.

    That is a view over a missing table, a virtual table without its module or with a damaged index: its module says
    with the code for a damaged file what is no damage of any other table.
    """
    try:
        return _pragma(connection, pragma, name, encoding)
    except (sqlite3.DatabaseError, UnicodeError) as error:
        if str(error) == MALFORMED:
            raise
        return []


def _pragma(connection: sqlite3.Connection, pragma: str, name: str, encoding: str) -> list[tuple]:
    """The rows of a pragma on one table, by value: Python refuses statements with bytes that are not UTF-8.

    Such a name is bound as the bytes of the database's own encoding, which is what CAST reads them in.
    """
    sql = f"SELECT * FROM pragma_{pragma}(CAST(? AS TEXT), 'main')"
    return connection.execute(sql, [bound_name(name, encoding)]).fetchall()


def bound_name(name: str, encoding: str) -> str | bytes:
    """A name as a value to bind: text where that can be, else the bytes that it stands for in the database."""
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        raw = name.encode("utf-8", "surrogateescape")
        return raw.decode("utf-8", "replace").encode(ENCODINGS[encoding]) if encoding in ENCODINGS else raw
    return name
