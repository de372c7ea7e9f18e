"""What SQLite raised, in one word and a message that says the same on every release and after every kind of end."""

import sqlite3

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
    sqlite3.SQLITE_IOERR: "machine",
    sqlite3.SQLITE_CANTOPEN: "machine",
    sqlite3.SQLITE_FULL: "machine",
    sqlite3.SQLITE_BUSY: "machine",
    sqlite3.SQLITE_PROTOCOL: "machine",
}


def timeout_text(seconds: float) -> str:
    """The message of a time-out, the same whether the query stopped itself or its process was ended."""
    return f"the query ran longer than {seconds:g} s"


def steps_text(steps: int) -> str:
    """The message for a query over its budget."""
    return f"the query took more than {steps / 1e6:g} million steps"


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
