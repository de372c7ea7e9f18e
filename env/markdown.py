"""Tables in Markdown."""

from collections.abc import Iterable, Sequence


def markdown_table(heads: Sequence[str], rows: Iterable[Iterable[str]], names: int | None = None) -> str:
    """Heading, rule and rows, a line each, without a line end after the last.

    The first ``names`` columns stand to the left, those after them are figures and stand to the right; None: all are
    names. A cell may hold anything: what would end it or its line is escaped.
    """
    names = len(heads) if names is None else names
    rule = ["---" if number < names else "---:" for number in range(len(heads))]
    return "\n".join([_line(heads), _line(rule), *map(_line, rows)])


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(" ".join(cell.replace("|", "\\|").splitlines()) for cell in cells) + " |"
