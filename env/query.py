"""One untrusted statement on one connection: run it within its limits, or say in one word why it failed.

Runs in the worker process. Nothing here ends a call that SQLite itself never leaves; the parent process does that.
"""

import marshal
import sqlite3
from time import monotonic
from typing import Any

from sqale_grpo.env.authorizer import DENIED, authorizer
from sqale_grpo.env.text import fold_name, quote_name

# Progress handler every so many instructions, about 30 µs: below 1% of a long query's time, far below a time limit.
STEPS = 2_000
ROWS = 256
SCHEMA = "SELECT type, name, sql LIKE 'create virtual %' FROM sqlite_master WHERE type IN ('table', 'view')"
# Read only twice over; views may call no function that reaches out; no temporary files; pages shared by all workers.
PRAGMAS = ("query_only=1", "trusted_schema=0", "temp_store=MEMORY", f"mmap_size={1 << 31}")
BLANK = " \t\n\r\f;\ufeff"

Reply = tuple[Any, Any, Any, Any]
NO_ROWS = "only statements that return rows are allowed"


class Refused(Exception):
    """What we refuse ourselves; its arguments are kind and message."""


class Connection:
    """A read-only connection to one database file, with its limits, its deadline and the tables it may read.

    ``reads`` and ``functions``: what the authorizer saw in the last statement; ``authorizer``: its callback.
    """

    def __init__(self, uri: str, limits: dict[str, Any]) -> None:
        self.limits = limits
        self.deadline = float("inf")
        self.reads: set[str] = set()
        self.functions: set[str] = set()
        # No statement cache: sqlite_stmt would list it, and the authorizer is asked only while a statement is compiled.
        self.sqlite = sqlite3.connect(uri, uri=True, isolation_level=None, cached_statements=0)
        try:
            self._prepare()
        except BaseException:
            self.sqlite.close()
            raise

    def _prepare(self) -> None:
        connection = self.sqlite
        for pragma in PRAGMAS:
            connection.execute(f"PRAGMA {pragma}")
        connection.text_factory = decode
        stored = connection.execute(SCHEMA).fetchall()
        modules = [name for (name,) in connection.execute("PRAGMA module_list")]
        virtual = [name for _, name, is_virtual in stored if is_virtual]
        self._connect_virtual_tables(virtual)
        shadow = self._shadow_tables() if virtual else set()
        self.tables = {
            fold_name(name): name
            for kind, name, _ in stored
            if kind == "table" and name not in shadow and not fold_name(name).startswith("sqlite_")
        }
        connection.text_factory = str
        self._set_limits()
        connection.set_progress_handler(self._overdue, STEPS)
        self.authorizer = authorizer([name for _, name, _ in stored], modules, self.reads, self.functions)
        connection.set_authorizer(self.authorizer)

    def _connect_virtual_tables(self, virtual: list[str]) -> None:
        """Declare them now: while it declares one, SQLite asks the authorizer for writes that we must refuse."""
        self.sqlite.execute("SELECT 1 FROM json_each('[]'), json_tree('[]')")
        for name in virtual:
            try:
                self.sqlite.execute(f"SELECT 1 FROM {quote_name(name)} LIMIT 0")
            except sqlite3.Error:
                continue  # a module this SQLite does not have: the query that uses it gets SQLite's own error

    def _shadow_tables(self) -> set[str]:
        return {row[1] for row in self.sqlite.execute("PRAGMA main.table_list") if row[2] == "shadow"}

    def _set_limits(self) -> None:
        limits = self.limits
        for code, bound in (
            (sqlite3.SQLITE_LIMIT_LENGTH, limits["length"]),
            (sqlite3.SQLITE_LIMIT_SQL_LENGTH, limits["sql_length"]),
            (sqlite3.SQLITE_LIMIT_EXPR_DEPTH, limits["depth"]),
            (sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH, limits["like_pattern"]),
            (sqlite3.SQLITE_LIMIT_VDBE_OP, limits["instructions"]),
            (sqlite3.SQLITE_LIMIT_ATTACHED, 0),
            (sqlite3.SQLITE_LIMIT_WORKER_THREADS, 0),
        ):
            self.sqlite.setlimit(code, int(bound))

    def _overdue(self) -> bool:
        return monotonic() > self.deadline

    def run(self, sql: str, cap: int, partial: bool) -> Reply:
        """("", columns, tables, (truncated, chunks of marshalled rows)), or (kind, message, None, None).

        More than ``cap`` rows are cut off where ``partial``, else an error.
        """
        self.reads.clear()
        self.functions.clear()
        self.deadline = monotonic() + self.limits["seconds"]
        try:
            return self._run(sql, cap, partial)
        except Refused as refused:
            return (*refused.args, None, None)
        except (sqlite3.Error, sqlite3.Warning, UnicodeError, MemoryError) as error:
            kind, message = verdict(error, self.limits["seconds"])
            if DENIED in self.reads:  # seldom SQLite's words for it, e.g. "vtable constructor failed"
                kind, message = "denied", message if "authoriz" in message else "not authorized"
            return kind, message, None, None

    def _run(self, sql: str, cap: int, partial: bool) -> Reply:
        try:
            return self._fetch(sql, cap, partial)
        except sqlite3.OperationalError as error:
            # Decoding by a Python function costs 0.1 µs a cell, so only databases that need it get it.
            if self.sqlite.text_factory is not str or not str(error).startswith("Could not decode to UTF-8"):
                raise
            self.sqlite.text_factory = decode
            return self._fetch(sql, cap, partial)
        except (sqlite3.Warning, sqlite3.ProgrammingError) as error:
            single = first_statement(sql) if "one statement at a time" in str(error) else None
            if single is None:
                raise
            return self._fetch(single, cap, partial)

    def _fetch(self, sql: str, cap: int, partial: bool) -> Reply:
        cursor = self.sqlite.execute(sql)
        if cursor.description is None:
            raise Refused(*(("syntax", "empty statement") if skip_blank(sql, 0) == len(sql) else ("denied", NO_ROWS)))
        columns = tuple(column[0] for column in cursor.description)
        try:
            more, chunks = self._chunks(cursor, cap)
        finally:
            cursor.close()
        if more and not partial:
            raise Refused("rows", f"the result has more than {cap} rows")
        return "", columns, self._tables_read(), (more, chunks)

    def _chunks(self, cursor: sqlite3.Cursor, cap: int) -> tuple[bool, list[bytes]]:
        """Are there more than ``cap`` rows, and those up to it, marshalled part by part to see their size grow."""
        chunks: list[bytes] = []
        size, room = 0, cap + 1
        while room:
            wanted = min(ROWS, room)
            rows = cursor.fetchmany(wanted)
            room -= len(rows)
            last = len(rows) < wanted
            if not room:
                rows.pop()
            chunks.append(marshal.dumps(rows))
            size += len(chunks[-1])
            if size > self.limits["result_mb"] * 1e6:
                raise Refused("memory", f"the result is larger than {self.limits['result_mb']:g} MB")
            if last:
                break
            if self._overdue():
                raise Refused("timeout", timeout_text(self.limits["seconds"]))
        return not room, chunks

    def _tables_read(self) -> tuple[str, ...]:
        tables = self.tables
        found = (tables.get(name) or tables.get(fold_name(name)) for name in self.reads)
        return tuple({table for table in found if table})


def decode(text: bytes) -> str:
    """Text of the database, kept bytewise where it is not UTF-8."""
    return text.decode("utf-8", "surrogateescape")


def timeout_text(seconds: float) -> str:
    """The message of a time-out, the same whether the query stopped itself or its process was ended."""
    return f"the query ran longer than {seconds:g} s"


def skip_blank(sql: str, start: int) -> int:
    """Index of the first character from ``start`` that is no white space, semicolon or comment; else the length."""
    while start < len(sql):
        if sql[start] in BLANK:
            start += 1
        elif sql.startswith("--", start):
            end = sql.find("\n", start)
            start = len(sql) if end < 0 else end + 1
        elif sql.startswith("/*", start):
            end = sql.find("*/", start + 2)
            start = len(sql) if end < 0 else end + 2
        else:
            break
    return start


def first_statement(sql: str) -> str | None:
    """The only statement of a text that goes on with empty ones (``SELECT 1;;``); None where a second one follows."""
    end = sql.find(";")
    while end >= 0 and not sqlite3.complete_statement(sql[: end + 1]):
        end = sql.find(";", end + 1)
    return sql[: end + 1] if end >= 0 and skip_blank(sql, end) == len(sql) else None


NO_SUCH = (
    "no such ",
    "ambiguous column name",
    "wrong number of arguments to function",
    "cannot join using column",
    "unknown database",
)
REFUSED = ("unsafe use of ", "table sqlite_master may not be modified")
TOO_LONG = ("string or blob too big", "LIKE or GLOB pattern too complex")
BY_CODE = {
    sqlite3.SQLITE_AUTH: "denied",
    sqlite3.SQLITE_READONLY: "denied",
    sqlite3.SQLITE_PERM: "denied",
    sqlite3.SQLITE_INTERRUPT: "timeout",
    sqlite3.SQLITE_NOMEM: "memory",
    sqlite3.SQLITE_TOOBIG: "memory",
}


def verdict(error: BaseException, seconds: float) -> tuple[str, str]:
    """Kind and message of what sqlite3 raised: by SQLite's result code where that decides, else by its text.

    ``seconds``: the time limit, for the message of a time-out.
    """
    message = str(error)
    if isinstance(error, MemoryError):
        return "memory", "out of memory"
    if isinstance(error, UnicodeEncodeError):
        return "syntax", "the query holds a lone surrogate, which is not text"
    if isinstance(error, UnicodeError):
        return "other", "a column name or SQLite's message is not UTF-8"
    if "null character" in message:
        return "syntax", message
    kind = BY_CODE.get(getattr(error, "sqlite_errorcode", 0) & 0xFF)
    if kind == "timeout":
        return kind, timeout_text(seconds)
    return kind or by_text(message), message


def by_text(message: str) -> str:
    """Kind of an error that SQLite reports with its general code."""
    if message.startswith('near "') and message.endswith("syntax error"):
        return "syntax"
    if message == "incomplete input" or message.startswith("unrecognized token"):
        return "syntax"
    if message.startswith(NO_SUCH):
        return "schema"
    if message.startswith(REFUSED):
        return "denied"
    return "memory" if message in TOO_LONG else "other"
