"""SQL as text: its tokens, its statements, and whether SQLite's parser accepts it."""

import re
from collections.abc import Iterator
from functools import lru_cache
from time import monotonic

from sqale_grpo.env.limits import SqlError
from sqale_grpo.env.pool import WorkerPool, default_pool
from sqale_grpo.env.query import skip_blank

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


@lru_cache(maxsize=1_024)
def is_ordered(sql: str) -> bool:
    """Whether a statement that SQLite accepts has an ORDER BY outside all parentheses.

    Inside parentheses it belongs to a sub-query, a CTE, a window or an aggregate. ORDER is a reserved word: outside
    quotes it can be nothing else.
    """
    depth, previous = 0, ""
    for token in tokens(sql):
        if token in ("(", ")"):
            depth += 1 if token == "(" else -1
        if depth == 0 and previous == "order" and token == "by":
            return True
        previous = token
    return False


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
    Raises SqlError("machine") where the machine failed.
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
        if error.kind == "machine":
            raise
        return error.message if error.kind == "syntax" else None
    return None
