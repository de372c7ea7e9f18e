"""Widths and precisions of ``printf`` and ``format``, held to the limit for values.

SQLite gives NULL for a value over its limit, but builds some of them first: ``printf('%.*c', 900000000, 'x')`` counts
to 900 million in one call, in which it looks at no clock and counts no step. Whether a time limit meets such a call
depends on the machine. Calls that show their widths in the statement, as nearly all do, run as they are; a statement
with others is run with these two functions replaced by ones that look first.
"""

import re
import sqlite3
from collections.abc import Callable

Value = str | int | float | bytes | None

FORMATS = ("printf", "format")
TOO_LONG = "string or blob too big"
DIGITS = 18  # of a number that is read
# A call, with its format where that is one literal; a comment may stand before the bracket.
_CALL = re.compile(r"""\b(?:printf|format)["`\]]?\s*(?:\(\s*'((?:[^']|'')*+)'\s*(?=[,)])|\(|--|/\*)""", re.IGNORECASE)
_NUMBER = re.compile(r"[0-9]+")
# One conversion: flags, width, precision, length, letter.
_CONVERSION = re.compile(r"%[-+ 0#!,]*([0-9]+|\*)?(?:\.([0-9]+|\*)?)?[hl]*(.)?", re.DOTALL)
_WHOLE = re.compile(r"\s*[-+]?[0-9]+")
_WITHOUT_VALUE = ("%", "n")


def shows_its_widths(sql: str, most: int) -> bool:
    """Does every call name its format, and do no width and precision in it come from values or pass ``most``?"""
    return not any(_hides(match[1], most) for match in _CALL.finditer(sql))


def _hides(literal: str | None, most: int) -> bool:
    return (
        literal is None
        or "*" in literal
        or any(len(number) > DIGITS or int(number) > most for number in _NUMBER.findall(literal))
    )


def widest(form: str, values: tuple[Value, ...]) -> int:
    """The largest width or precision that a call asks for."""
    left = iter(values)
    most = 0
    for width, precision, letter in _CONVERSION.findall(form):
        for size in (width, precision):
            most = max(most, abs(whole(next(left, 0) if size == "*" else size)))
        if letter not in _WITHOUT_VALUE:
            next(left, None)
    return most


def whole(value: Value) -> int:
    """A value as SQLite reads it where it needs a whole number: of a text the digits that it begins with."""
    if isinstance(value, int | float):
        return int(value) if abs(value) < 2**63 else 2**63
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else value or ""
    match = _WHOLE.match(text)
    return int(match[0][: DIGITS + 1]) if match else 0


def hold_formats(connection: sqlite3.Connection, most: int) -> Callable[[], bool]:
    """Replace the functions on ``connection``; what is returned says whether a call was refused.

    A refused call ends its statement with SQLite's error for a function that failed. All others give what SQLite's own
    function gives, on a connection without a database.
    """
    builtin = sqlite3.connect(":memory:", isolation_level=None)
    builtin.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, most)
    refused: list[str] = []

    def call(*values: Value) -> Value:
        form = values[0] if values else None
        if form is not None and widest(str(form), values[1:]) > most:
            refused.append(TOO_LONG)
            raise ValueError(TOO_LONG)
        return builtin.execute(f"SELECT printf({', '.join('?' * len(values))})", values).fetchone()[0]

    for name in FORMATS:
        connection.create_function(name, -1, call, deterministic=True)
    return lambda: bool(refused)
