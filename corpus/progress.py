"""What a person sees of ``prepare``: progress with rate and time left, and the summary at the end."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from rich import progress as rich_progress
from rich.console import Console
from rich.table import Table

Item = TypeVar("Item")


class _Rate(rich_progress.ProgressColumn):
    """Questions a second."""

    def render(self, task: rich_progress.Task) -> str:
        return f"{task.speed or 0:,.0f}/s"


class Progress:
    """Two bars, reading and judging, on standard error; silent where ``shown`` is false."""

    def __init__(self, shown: bool) -> None:
        self._bars = rich_progress.Progress(
            rich_progress.TextColumn("{task.description}"),
            rich_progress.BarColumn(),
            rich_progress.MofNCompleteColumn(),
            _Rate(),
            rich_progress.TimeRemainingColumn(),
            console=Console(stderr=True),
            disable=not shown,
        )
        self._judging: rich_progress.TaskID | None = None

    def __enter__(self) -> "Progress":
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def reading(self, items: Iterable[Item]) -> Iterator[Item]:
        """Pass the items on while the first bar counts them; their total is unknown."""
        return iter(self._bars.track(items, description="reading questions", total=None))

    def judging(self, total: int, done: int) -> None:
        """Start the second bar: ``done`` of ``total`` questions were judged before."""
        self._judging = self._bars.add_task("running gold queries", total=total, completed=done)

    def advance(self, questions: int) -> None:
        """Count questions that were judged."""
        if self._judging is not None:
            self._bars.advance(self._judging, questions)


def print_summary(summary: dict[str, Any], out: Path) -> None:
    """The table that ends ``prepare``: read, kept, dropped by reason, marked by cause."""
    table = Table("questions", "number", title=f"{summary['corpus']} ({summary['split']}) in {out}")
    table.columns[1].justify = "right"
    for label, value in summary_rows(summary):
        table.add_row(label, f"{value:,}")
    Console(stderr=True).print(table)


def summary_rows(summary: dict[str, Any]) -> list[tuple[str, int]]:
    """The summary as (label, count), in the order in which it is shown."""
    return [
        ("read", summary["read"]),
        ("kept", summary["kept"]),
        *((f"  dropped: {reason}", n) for reason, n in summary["dropped"].items()),
        ("  kept with an empty gold result", summary["empty_gold"]),
        *((f"  kept but unstable: {cause}", n) for cause, n in summary["unstable"].items()),
        ("  kept, tables found by SQLite because sqlglot could not parse", summary["tables_by_authorizer"]),
        ("databases", summary["databases"]),
    ]
