"""How results look: rows as a table, long things cut, nothing that a tokenizer cannot take.

Names as SQLite compares and reads them.
"""

import re
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any

_ASCII_LOWER = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}


def fold_name(name: str) -> str:
    """The form under which SQLite compares names: ASCII letters in lower case, all others as they are."""
    return name.lower() if name.isascii() else name.translate(_ASCII_LOWER)


def quote_name(name: str) -> str:
    """A name as an identifier of SQL."""
    return '"' + name.replace('"', '""') + '"'


_SURROGATE = re.compile("[\ud800-\udfff]")
_KEPT = "\n\t\u200c\u200d"  # scripts and emoji need the joiners, and they move nothing


def table_lines(columns: Sequence[str], rows: Iterable[Sequence[Any]], cell_chars: int) -> list[str]:
    """A heading and one line a row (project page); a result without rows says so (our assumption)."""
    lines = [" | ".join([cell(column, cell_chars) for column in columns])]
    lines += [" | ".join([cell(value, cell_chars) for value in row]) for row in rows]
    return lines if len(lines) > 1 else [*lines, "(no rows)"]


def cell(value: Any, size: int) -> str:
    """A value on one line: NULL as ``None``, blobs as SQL literals, line ends as ``\\n``."""
    # A blob has two digits a byte: no more of them are turned into text than the cell can show.
    text = f"x'{value[:size].hex().upper()}'" if isinstance(value, bytes) else str(value)
    if len(text) > size:
        text = text[:size] + "…"
    return text.replace("\r", "\\r").replace("\n", "\\n")


def cut(text: str, size: int) -> str:
    """The first ``size`` characters, and a line that says so where there are more."""
    if len(text) <= size:
        return text
    return f"{text[:size]}\n... (result cut: first {size} of {len(text)} characters shown)"


def one_line(text: str, size: int) -> str:
    """White space folded, at most ``size`` characters."""
    line = " ".join(text.split())
    return line if len(line) <= size else line[:size] + "…"


def printable(text: str) -> str:
    """Lone surrogates replaced: bytes that are not UTF-8 travel as such, and no tokenizer takes them."""
    return text if text.isascii() else _SURROGATE.sub("\ufffd", text)


def harmless(text: str) -> str:
    """Text from a database or a policy as a terminal may show it: control and direction characters are written out.

    Line ends and tabs stay. An escape sequence in a cell could otherwise recolour, hide or overwrite what was printed.
    """
    if text.isprintable():
        return text
    return "".join(_shown(character) for character in text)


def harmless_json(text: str) -> str:
    """The same JSON with such characters as ``\\u`` escapes: a pipe often ends at a terminal."""
    if text.isprintable():
        return text
    return "".join(_escaped(character) for character in text)


def _escaped(character: str) -> str:
    if not _moves(character):
        return character
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{int.from_bytes(units[place : place + 2], 'big'):04x}" for place in range(0, len(units), 2))


def _moves(character: str) -> bool:
    """Could it do something to a terminal, or to the order of what stands beside it?"""
    return character not in _KEPT and unicodedata.category(character) in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")


def _shown(character: str) -> str:
    if not _moves(character):
        return character
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
