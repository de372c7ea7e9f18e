"""One untrusted statement on one connection: run it within its limits, or say in one word why it failed.

Runs in the worker process. Nothing here ends a call that SQLite itself never leaves; the parent process does that.
"""

import marshal
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from itertools import islice
from time import monotonic, process_time
from typing import Any

from sqale_grpo.env.authorizer import DENIED, SCHEMA_FUNCTIONS, Callback, authorizer
from sqale_grpo.env.formats import hold_formats, shows_its_widths
from sqale_grpo.env.plain import plain_rows
from sqale_grpo.env.text import fold_name, quote_name
from sqale_grpo.env.verdict import TOO_LONG, steps_text, timeout_text, verdict

# Progress handler every so many instructions, about 30 µs: below 1% of a long query's time, far below a time limit.
STEPS = 2_000
ROWS = 256
SCHEMA = "SELECT type, name, sql LIKE 'create virtual %' FROM sqlite_master WHERE type IN ('table', 'view')"
# Read only twice over; views may call no function that reaches out; no temporary files; pages shared by all workers.
PRAGMAS = ("query_only=1", "trusted_schema=0", "temp_store=MEMORY", f"mmap_size={1 << 31}")
LONGEST_STORED = 2**31 - 1
BLANK = " \t\n\r\f;\ufeff"

Reply = tuple[Any, Any, Any, Any]
NO_ROWS = "only statements that return rows are allowed"


class Refused(Exception):
    """What we refuse ourselves; its arguments are kind and message."""


class Connection:
    """A read-only connection to one database file, with its limits, its deadline and the tables it may read.

    ``reads`` and ``functions``: what the authorizer saw in the last statement; ``authorizer``: its callback.
    """

    def __init__(
        self,
        uri: str,
        limits: dict[str, Any],
        lock_seconds: float = 0.0,
        held: bool = False,
        opened: sqlite3.Connection | None = None,
    ) -> None:
        """``lock_seconds``: how long to wait for a program that writes the file; 0: nobody does.

        ``held``: with functions ``printf`` and ``format`` that look at their widths first (``env.formats``).
        ``opened``: a connection to take instead of opening ``uri``.
        """
        self.uri, self.lock_seconds = uri, lock_seconds
        self.limits = limits
        self.held = held
        self.broken: dict[str, tuple[str, str]] = {}  # virtual tables that cannot be used, and why
        self.sql = ""  # the statement that runs
        self.plain = False  # is it run as a benchmark's script would?
        self.hides_widths: bool | None = None  # does it, in its calls of printf or format? None: it was not looked at
        self.too_wide: Callable[[], bool] = lambda: False  # was such a call refused?
        self.deadline = self.cpu_deadline = float("inf")
        self.ticks = 0  # of the progress handler in the last statement, and how many it may have
        self.most_ticks = float("inf")
        self.authorizer: Callback | None = None
        self.reads: set[str] = set()
        self.functions: set[str] = set()
        # No statement cache: sqlite_stmt would list it, and the authorizer is asked only while a statement is compiled.
        self.sqlite = opened or sqlite3.connect(uri, lock_seconds, uri=True, isolation_level=None, cached_statements=0)
        try:
            self._prepare()
        except BaseException:
            self.sqlite.close()
            raise

    def _prepare(self) -> None:
        connection = self.sqlite
        for pragma in PRAGMAS:
            connection.execute(f"PRAGMA {pragma}")
        if self.lock_seconds:  # a program that shortens the file would end this process at a look at a mapped page
            connection.execute("PRAGMA mmap_size=0")
        connection.text_factory = decode
        self.known_schema = self.schema_version()
        stored = connection.execute(SCHEMA).fetchall()
        modules = [name for (name,) in connection.execute("PRAGMA module_list")]
        virtual = [name for _, name, is_virtual in stored if is_virtual]
        self._connect_virtual_tables(virtual)
        self.shadow = self._shadow_tables() if virtual else set()
        self.tables = {
            fold_name(name): name
            for kind, name, _ in stored
            if kind == "table" and name not in self.shadow and not fold_name(name).startswith("sqlite_")
        }
        connection.text_factory = str
        self._set_limits()
        connection.set_progress_handler(self._tick, STEPS)
        if self.held:
            self.too_wide = hold_formats(connection, self.limits["length"])
        names = [name for _, name, _ in stored]
        self.authorizer = authorizer(names, modules, self.reads, self.functions, self._may_format, lambda: self.plain)
        connection.set_authorizer(self.authorizer)

    def _connect_virtual_tables(self, virtual: list[str]) -> None:
        """Declare them now: while it declares one, SQLite asks the authorizer for writes that we must refuse."""
        self.sqlite.execute("SELECT 1 FROM json_each('[]'), json_tree('[]')")
        self.sqlite.execute(f"SELECT 1 FROM {', '.join(f'{table}(0)' for table in sorted(SCHEMA_FUNCTIONS))}")
        for name in virtual:
            try:
                self.sqlite.execute(f"SELECT 1 FROM {quote_name(name)} LIMIT 0")
            except (sqlite3.Error, UnicodeError) as error:
                # A module this SQLite does not have, a damaged index, a name that is not UTF-8: who uses the table gets
                # SQLite's own error, and not the authorizer's about what its module tries once more.
                self.broken[fold_name(name)] = verdict(error, self.limits["seconds"])

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

    def schema_version(self) -> int:
        """A number that changes with every CREATE and DROP."""
        with self.trusted():
            return self.sqlite.execute("PRAGMA schema_version").fetchone()[0]

    @contextmanager
    def trusted(self) -> Iterator[None]:
        """Without the authorizer, for our own statements."""
        self.sqlite.set_authorizer(None)
        try:
            yield
        finally:
            self.sqlite.set_authorizer(self.authorizer)

    def _may_format(self) -> bool:
        if self.hides_widths is None:  # once, however many calls the statement has
            self.hides_widths = not (self.held or shows_its_widths(self.sql, self.limits["length"]))
        return not self.hides_widths

    def _tick(self) -> bool:
        self.ticks += 1
        return self.ticks > self.most_ticks or monotonic() > self.deadline

    @property
    def steps(self) -> int:
        """Virtual-machine steps of the last statement, in whole units of ``STEPS``."""
        return self.ticks * STEPS

    def start(self) -> None:
        """Begin a statement's time and steps."""
        self.ticks = 0
        self.most_ticks = self.limits["steps"] // STEPS
        self.deadline = monotonic() + self.limits["seconds"]
        # A query that is done is late only if it worked so long itself, and did not merely wait for a busy machine.
        self.cpu_deadline = process_time() + self.limits["seconds"]

    def run(
        self, sql: str, cap: int, partial: bool, cell_chars: int = 0, stored: bool = False, plain: str = ""
    ) -> Reply:
        """("", columns, tables, (truncated, chunks of marshalled rows)), or (kind, message, None, None).

        More than ``cap`` rows are cut off where ``partial``, else an error. ``cell_chars``: values and headings are
        cut to what a table of such cells shows (0: they are not). ``stored``: the statement is ours and only looks at
        stored values, which may be longer than the limit for what a query makes. ``plain``: as of ``Query``.
        """
        self.reads.clear()
        self.functions.clear()
        self.sql, self.hides_widths, self.plain = sql, None, bool(plain)
        self.start()
        if stored:
            self.sqlite.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST_STORED)
        try:
            return self._run_plain(sql, cap, plain) if plain else self._run(sql, cap, partial, cell_chars)
        except Refused as refused:
            return (*refused.args, None, None)
        except (sqlite3.Error, sqlite3.Warning, UnicodeError, MemoryError) as error:
            if self.hides_widths:
                return self._run_held(sql, cap, partial, cell_chars, False, plain)
            return (*self._verdict(error), None, None)
        finally:
            if stored:
                self.sqlite.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, self.limits["length"])

    def _run_held(self, *query: Any) -> Reply:
        """The same on a connection of its own, since SQLite does not give its own functions back."""
        try:
            with closing(Connection(self.uri, self.limits, self.lock_seconds, held=True)) as other:
                reply = other.run(*query)
        except (sqlite3.Error, UnicodeError) as error:
            return (*verdict(error, self.limits["seconds"]), None, None)
        self.ticks = other.ticks
        for own, seen in ((self.reads, other.reads), (self.functions, other.functions)):
            own.clear()
            own.update(seen)
        return reply

    def close(self) -> None:
        """Close the file."""
        self.sqlite.close()

    def _verdict(self, error: BaseException) -> tuple[str, str]:
        if self.too_wide():
            return "memory", TOO_LONG[0]
        kind, message = verdict(error, self.limits["seconds"])
        if kind == "timeout" and self.ticks > self.most_ticks:
            message = steps_text(self.limits["steps"])
        if DENIED in self.reads and self.broken:
            folded = fold_name(self.sql)
            own = next((told for name, told in self.broken.items() if name in folded), None)
            if own is not None:
                return own
        if DENIED in self.reads:  # seldom SQLite's words for it, e.g. "vtable constructor failed"
            kind, message = "denied", message if "authoriz" in message else "not authorized"
        return kind, message

    def _run(self, sql: str, cap: int, partial: bool, cell_chars: int) -> Reply:
        try:
            return self._decoded(sql, cap, partial, cell_chars)
        except (sqlite3.Warning, sqlite3.ProgrammingError) as error:
            single = first_statement(sql) if "one statement at a time" in str(error) else None
            if single is None:
                raise
            return self._decoded(single, cap, partial, cell_chars)

    def _decoded(self, sql: str, cap: int, partial: bool, cell_chars: int) -> Reply:
        try:
            return self._fetch(sql, cap, partial, cell_chars)
        except sqlite3.OperationalError as error:
            # Decoding by a Python function costs 0.1 µs a cell, so only databases that need it get it.
            if self.sqlite.text_factory is not str or not str(error).startswith("Could not decode to UTF-8"):
                raise
            self.sqlite.text_factory = decode
            return self._fetch(sql, cap, partial, cell_chars)

    def _run_plain(self, sql: str, cap: int, plain: str) -> Reply:
        """Every row is fetched and read as text in UTF-8, as Python's sqlite3 does it; what is not fails."""
        before, self.sqlite.text_factory = self.sqlite.text_factory, str
        try:
            with closing(self.sqlite.execute(sql)) as cursor:
                rows = plain_rows(cursor, cap, plain, self._check_time)
        finally:
            self.sqlite.text_factory = before
        chunk = marshal.dumps(rows)
        if len(chunk) > self.limits["result_mb"] * 1e6:
            raise Refused("memory", f"the result is larger than {self.limits['result_mb']:g} MB")
        return "", (), self._tables_read(), (False, [chunk])

    def _check_time(self) -> None:
        if monotonic() > self.deadline:
            raise Refused("timeout", timeout_text(self.limits["seconds"]))

    def _fetch(self, sql: str, cap: int, partial: bool, cell_chars: int) -> Reply:
        cursor = self.sqlite.execute(sql)
        if cursor.description is None:
            raise Refused(*(("syntax", "empty statement") if skip_blank(sql, 0) == len(sql) else ("denied", NO_ROWS)))
        columns = tuple(column[0] for column in cursor.description)
        if cell_chars:
            columns = shortened(columns, cell_chars)
        try:
            more, chunks = self._chunks(cursor, cap, cell_chars)
        finally:
            cursor.close()
        if more and not partial:
            raise Refused("rows", f"the result has more than {cap} rows")
        return "", columns, self._tables_read(), (more, chunks)

    def _chunks(self, cursor: sqlite3.Cursor, cap: int, cell_chars: int) -> tuple[bool, list[bytes]]:
        """Are there more than ``cap`` rows, and those up to it, marshalled part by part to see their size grow."""
        chunks: list[bytes] = []
        size, room = 0, cap + 1
        while room:
            wanted = min(ROWS, room)
            if cell_chars:  # row by row: a few of them whole may already be too many for the memory
                rows = [shortened(row, cell_chars) for row in islice(cursor, wanted)]
            else:
                rows = cursor.fetchmany(wanted)
            room -= len(rows)
            last = len(rows) < wanted
            if not room:
                rows.pop()
            chunks.append(marshal.dumps(rows))
            size += len(chunks[-1])
            if size > self.limits["result_mb"] * 1e6:
                raise Refused("memory", f"the result is larger than {self.limits['result_mb']:g} MB")
            # After the last rows too: one call of a function may have taken all the time, and ticked never.
            if monotonic() > self.deadline and (not last or process_time() > self.cpu_deadline):
                raise Refused("timeout", timeout_text(self.limits["seconds"]))
            if last:
                break
        return not room, chunks

    def _tables_read(self) -> tuple[str, ...]:
        tables = self.tables
        found = (tables.get(name) or tables.get(fold_name(name)) for name in self.reads)
        return tuple({table for table in found if table is not None})


def decode(text: bytes) -> str:
    """Text of the database, kept bytewise where it is not UTF-8."""
    return text.decode("utf-8", "surrogateescape")


def shortened(row: tuple, cell_chars: int) -> tuple:
    """A row whose texts and blobs are no longer than a cell of so many characters needs to show that it is cut."""
    size = cell_chars + 1
    return tuple(value[:size] if isinstance(value, str | bytes) else value for value in row)


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
