"""What a person sees of ``prepare``: progress with rate and time left, and the summary at the end."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from rich import progress as rich_progress
from rich.console import Console
from rich.table import Table
from rich.text import Text

from sqale_grpo.corpus import reasons
from sqale_grpo.corpus.prepared import DROPPED
from sqale_grpo.env.text import harmless

Item = TypeVar("Item")
NAMED = 5  # databases of a warning


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
        """Start the second bar, or set it: ``done`` of ``total`` questions were judged before."""
        if self._judging is None:
            self._judging = self._bars.add_task("running gold queries", total=total, completed=done)
        self._bars.update(self._judging, total=total, completed=done)

    def advance(self, questions: int) -> None:
        """Count questions that were judged."""
        if self._judging is not None:
            self._bars.advance(self._judging, questions)


def print_summary(summary: dict[str, Any], out: Path) -> None:
    """The table that ends ``prepare``: read, kept, dropped by reason, marked by cause."""
    table = Table("questions", "number", title=Text(harmless(f"{summary['corpus']} ({summary['split']}) in {out}")))
    table.columns[1].justify = "right"
    for label, value in summary_rows(summary):
        table.add_row(Text(harmless(label)), f"{value:,}")
    console = Console(stderr=True)
    console.print(table)
    warning = missing_databases(out)
    if warning:
        console.print(Text(harmless(warning)), style="bold red", soft_wrap=True)
    example = first_dropped(out)
    if example:
        why = f"{example['reason']}: {example['detail']}" if example["detail"] else example["reason"]
        text = f"dropped ones are listed in {out / DROPPED}, such as {example['question_id']}: {why}"
        console.print(Text(harmless(text)), soft_wrap=True)


def missing_databases(out: Path) -> str:
    """Which databases are missing or broken, how many questions that costs, and the fix; empty where none is."""
    lost: dict[str, str] = {}
    questions = 0
    with (out / DROPPED).open(encoding="utf-8") as file:
        for record in map(json.loads, file):
            if record["reason"] in (reasons.NO_DATABASE, reasons.BAD_DATABASE):
                questions += 1
                lost.setdefault(record["db_id"], record["detail"])
    if not lost:
        return ""
    named = "; ".join(f"{db_id!r}: {detail}" for db_id, detail in list(lost.items())[:NAMED])
    more = f"; and {len(lost) - NAMED:,} more" if len(lost) > NAMED else ""
    return (
        f"{len(lost):,} databases are missing or broken, and their {questions:,} questions are dropped "
        f"({named}{more}): put that right, delete {out} and prepare again to have them"
    )


def first_dropped(out: Path) -> dict[str, str] | None:
    """The first line of the file of dropped questions."""
    with (out / DROPPED).open(encoding="utf-8") as file:
        return next((json.loads(line) for line in file), None)


def summary_rows(summary: dict[str, Any]) -> list[tuple[str, int]]:
    """The summary as (label, count), in the order in which it is shown."""
    return [
        ("read", summary["read"]),
        *([("  not drawn by the run, so not executed", summary["not_drawn"])] if summary.get("not_drawn") else []),
        ("kept", summary["kept"]),
        *((f"  dropped: {reason}", n) for reason, n in summary["dropped"].items()),
        ("  kept with an empty gold result", summary["empty_gold"]),
        *((f"  kept but unstable: {cause}", n) for cause, n in summary["unstable"].items()),
        *((f"  kept with fewer copies: {cause}", n) for cause, n in summary.get("missing_copies", {}).items()),
        ("  kept, tables found by SQLite because sqlglot could not parse", summary["tables_by_authorizer"]),
        ("databases", summary["databases"]),
    ]
