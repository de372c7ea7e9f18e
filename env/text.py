"""How results look: rows as a table, long things cut, nothing that a tokenizer cannot take."""

import re
from collections.abc import Iterable, Sequence
from typing import Any

_SURROGATE = re.compile("[\ud800-\udfff]")


def table_lines(columns: Sequence[str], rows: Iterable[Sequence[Any]], cell_chars: int) -> list[str]:
    """A heading and one line a row (project page); a result without rows says so (our assumption)."""
    lines = [" | ".join([_cell(column, cell_chars) for column in columns])]
    lines += [" | ".join([_cell(value, cell_chars) for value in row]) for row in rows]
    return lines if len(lines) > 1 else [*lines, "(no rows)"]


def _cell(value: Any, size: int) -> str:
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
