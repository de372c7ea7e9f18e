"""SQL as text: its tokens, its statements, and whether SQLite's parser accepts it.

Compile one statement on an empty schema and run nothing: what SQLite's own parser says of it.

Runs in the worker process, since compiling is not harmless: a PRAGMA takes effect while it is compiled, also behind
EXPLAIN, and some statements explode there.
"""

import marshal
import re
import sqlite3
from collections.abc import Iterator
from time import monotonic
from typing import Any

from sqale_grpo.env.authorizer import FUNCTIONS
from sqale_grpo.env.limits import SqlError
from sqale_grpo.env.pool import WorkerPool, default_pool
from sqale_grpo.env.query import Reply, skip_blank, verdict

REFUSED = (sqlite3.SQLITE_PRAGMA, sqlite3.SQLITE_ATTACH, sqlite3.SQLITE_DETACH)
COMPILED: Reply = ("", (), (), (False, (marshal.dumps([]),)))


class Scratch:
    """A connection to a database in memory that stays empty, within the limits of a query."""

    def __init__(self, limits: dict[str, Any]) -> None:
        self.limits = limits
        self.sqlite = sqlite3.connect(":memory:", isolation_level=None, cached_statements=0)
        self.sqlite.setlimit(sqlite3.SQLITE_LIMIT_VDBE_OP, limits["instructions"])
        self.sqlite.setlimit(sqlite3.SQLITE_LIMIT_SQL_LENGTH, limits["sql_length"])
        self.sqlite.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        self.sqlite.set_authorizer(authorize)

    def run(self, statement: str, cap: int, partial: bool) -> Reply:
        """No rows where the statement compiles, else the kind and message of its error."""
        explained = statement[:7].lower() == "explain"
        try:
            # What this returns is a plan, whatever the statement: it does not run.
            self.sqlite.execute(statement if explained else f"EXPLAIN QUERY PLAN {statement}").close()
        except (sqlite3.Error, sqlite3.Warning, ValueError, MemoryError) as error:
            return (*verdict(error, self.limits["seconds"]), None, None)
        return COMPILED


def authorize(action: int, first: str | None, second: str | None, *_: str | None) -> int:
    """Refuse what acts, or could, while it is compiled; all the rest must pass, or it would hide a syntax error."""
    if action in REFUSED or (action == sqlite3.SQLITE_FUNCTION and (second or "").lower() in FUNCTIONS):
        return sqlite3.SQLITE_DENY
    return sqlite3.SQLITE_OK


# Comments, strings and quoted names, closed or not; words; the signs that statements and parentheses are made of.
TOKEN = re.compile(
    r"--[^\n]*|/\*.*?(?:\*/|\Z)|'[^']*(?:'|\Z)|\"[^\"]*(?:\"|\Z)|`[^`]*(?:`|\Z)|\[[^\]]*(?:\]|\Z)|[\w$]+|[();]",
    re.DOTALL,
)
TRIGGER = re.compile(r"(?:explain )?(?:query plan )?create (?:temp |temporary )?trigger ")
BODY_END = [";", "end", ";"]
# All statements of a text together; one that began in time may take its own second more.
SECONDS = 1.0


def tokens(sql: str) -> Iterator[str]:
    """Words in lower case, quoted text as it is, parentheses and semicolons; comments and other signs left out."""
    for found in TOKEN.finditer(sql):
        token = found.group()
        if not token.startswith(("--", "/*")):
            yield token if token[0] in "'\"`[" else token.lower()


def statements(sql: str) -> Iterator[str]:
    """The statements of a text that are not blank, without what is blank before them.

    Semicolons in a trigger's body part nothing. Takes time in proportion to the text, unlike asking
    ``sqlite3.complete_statement`` at every semicolon.
    """
    start, words = 0, []
    for found in TOKEN.finditer(sql):
        word = found.group().lower()
        if word.startswith(("--", "/*")):
            continue
        words.append(word)
        if word == ";" and (words[-3:] == BODY_END or not TRIGGER.match(" ".join(words[:6]))):
            yield from unblanked(sql[start : found.end()])
            start, words = found.end(), []
    yield from unblanked(sql[start:])


def unblanked(text: str) -> list[str]:
    """The text from its first sign on, if it has one."""
    first = skip_blank(text, 0)
    return [text[first:]] if first < len(text) else []


def parse_error(sql: str, pool: WorkerPool | None = None) -> str | None:
    """Why SQLite's parser refuses a text; None where it accepts every statement in it, and there is one.

    Judged on an empty schema (``env.scratch``): on a real one an unknown table or a refused action can hide a later
    syntax error. What cannot be compiled within the limits counts as accepted: a statement, or the rest of a text.
    """
    pool = pool or default_pool()
    ends, statement = monotonic() + SECONDS, None
    for statement in statements(sql):
        compile_error = syntax_error(statement, pool)
        if compile_error is not None or monotonic() > ends:
            return compile_error
    return "empty statement" if statement is None else None


def syntax_error(statement: str, pool: WorkerPool) -> str | None:
    """The parser's error for one statement."""
    try:
        pool.run(pool.scratch, statement, 0, True)
    except SqlError as error:
        return error.message if error.kind == "syntax" else None
    return None
