"""A table: its rows as text and the figures behind them, written for a terminal, as Markdown and as CSV.

What the tables have in common: names of sizes, benchmarks and policies, and which evaluations a row is about.
"""

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.table import Table as RichTable
from rich.text import Text

from sqale_grpo.env.files import write_whole
from sqale_grpo.env.markdown import markdown_table
from sqale_grpo.env.text import harmless
from sqale_grpo.evaluate import published
from sqale_grpo.evaluate.evaluations import Evaluation, policies, sizes
from sqale_grpo.evaluate.figures import NOTHING, PART_OF_BENCHMARK, Figure, figure


@dataclass
class Table:
    """A table: ``rows`` are its cells as text, ``figures`` the numbers behind them, ``notes`` stand below it."""

    name: str
    title: str
    head: list[str]
    rows: list[list[str]] = field(default_factory=list)
    figures: list[Figure] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    labels: int = 1  # so many columns are names, to the left

    def add(self, label: str | Sequence[str], cells: Iterable[str]) -> None:
        """One row."""
        names = [label] if isinstance(label, str) else list(label)
        self.labels = len(names)
        self.rows.append([*names, *cells])

    def markdown(self) -> str:
        """Heading, table and notes."""
        lines = [
            f"### {self.title}",
            "",
            markdown_table(self.head, self.rows, names=self.labels),
            "",
        ]
        return "\n".join([*lines, *(f"{note}\n" for note in self.all_notes())])

    def all_notes(self) -> list[str]:
        """The notes, and those on the identity of the figures."""
        return [*self.notes, *identity_notes(self.figures)]

    def rich(self) -> RichTable:
        """For a terminal. Names come from files: they are text, never markup, nor anything that a terminal obeys."""
        table = RichTable(title=_text(self.title), title_justify="left", caption_justify="left")
        for number, name in enumerate(self.head):
            # Names are told whole, in a narrow window too.
            table.add_column(_text(name), justify="left" if number < self.labels else "right", overflow="fold")
        for row in self.rows:
            table.add_row(*map(_text, row))
        notes = self.all_notes()
        table.caption = _text("\n".join(notes)) if notes else None
        return table

    def csv(self) -> str:
        """The figures, one a line, in full precision; the cells where a table has no figures."""
        out = io.StringIO()
        if not self.figures:
            csv.writer(out, lineterminator="\n").writerows([self.head, *self.rows])
            return out.getvalue()
        writer = csv.DictWriter(out, list(asdict(self.figures[0])), lineterminator="\n")
        writer.writeheader()
        for each in self.figures:
            writer.writerow({**asdict(each), "missing": " ".join(each.missing)})
        return out.getvalue()


def identity_notes(figures: Sequence[Figure]) -> list[str]:
    """Which measurement each figure is, and of which benchmark too many questions are missing."""
    where: dict[str, dict[str, None]] = {}
    for each in figures:
        if each.identity:
            place = f"{each.policy} on {benchmark_name(each.benchmark)}, {size_name(each.schema).lower()}"
            where.setdefault(each.identity, {})[place] = None
    if len(where) == 1:
        notes = [f"Identity of every figure: {next(iter(where))}."]
    else:
        told = (f"{'; '.join(places)}: {identity}" for identity, places in where.items())
        notes = [f"Identities: {'. '.join(told)}."] if where else []
    parts = {f"{benchmark_name(each.benchmark)}, {each.why}": None for each in figures if each.of_part}
    return [*notes, *(f"{PART_OF_BENCHMARK}: questions of the benchmark are missing ({part})." for part in parts)]


def _text(cell: str) -> Text:
    return Text(harmless(cell))


def write_tables(tables: Sequence[Table], folder: Path, title: str, more: Sequence[str] = ()) -> list[Path]:
    """``folder/tables.md`` with all tables and, after them, the lines ``more``, and ``folder/NAME.csv`` of each."""
    folder.mkdir(parents=True, exist_ok=True)
    texts: dict[str, Any] = {"tables.md": "\n".join([f"# {title}", "", *(table.markdown() for table in tables), *more])}
    texts |= {f"{table.name}.csv": table.csv() for table in tables}
    for name, text in texts.items():
        write_whole(folder / name, text.rstrip("\n") + "\n")
    return [folder / name for name in texts]


SIZE_NAMES = {"gold": "Gold tables only", "full": "Full schema", "sampled": "Sampled as in training"}


def size_name(schema: str) -> str:
    """A size of the schema as the card words it."""
    number = schema.partition(":")[2]
    return f"+ {number} distractor tables" if number else SIZE_NAMES.get(schema, schema)


def benchmark_name(benchmark: str) -> str:
    """A benchmark as the card words it."""
    return published.BENCHMARKS.get(benchmark, benchmark)


def select(
    evaluations: Sequence[Evaluation], policy: str = "", benchmark: str = "", schema: str = ""
) -> list[Evaluation]:
    """Those of a policy, of a benchmark, of a size; empty: any."""
    return [
        each
        for each in evaluations
        if policy in ("", each.policy) and benchmark in ("", each.benchmark) and schema in ("", each.schema)
    ]


def largest_size(evaluations: Sequence[Evaluation]) -> str:
    """``full`` where it was evaluated, else the largest size that was."""
    found = sizes(evaluations)
    return "full" if "full" in found else found[-1]


def policy_label(evaluations: Sequence[Evaluation]) -> str:
    """A policy's name and, where it has several, the number of its seeds."""
    models = len({each.model for each in evaluations})
    return f"{evaluations[0].policy} ({models} seeds)" if models > 1 else evaluations[0].policy


def card_name(evaluations: Sequence[Evaluation]) -> str | None:
    """The card's name of a policy, where all its models are that one."""
    names = {each.published for each in evaluations}
    return names.pop() if len(names) == 1 else None


def by_policy_and_size(evaluations: Sequence[Evaluation]) -> list[tuple[list[str], list[Evaluation]]]:
    """For every policy and size its labels and evaluations."""
    return [
        ([policy_label(select(evaluations, name)), size_name(size)], here)
        for name in policies(evaluations)
        for size in sizes(evaluations)
        if (here := select(evaluations, name, schema=size))
    ]


def accuracy_and_recall(
    table: Table, here: Sequence[Evaluation], known: published.Published | None = None, difficulty: str = ""
) -> str:
    """A cell with both, and the robust accuracy where it was looked at; their figures are added to the table."""
    recall = figure(here, "table_recall", difficulty, known.recall if known else None)
    beside = NOTHING if recall.value is None else f"({recall.value * 100:.1f})"
    text = accuracy_cell(table, here, known.accuracy if known else None, difficulty, beside)
    table.figures.append(recall)
    return text


def accuracy_cell(
    table: Table, here: Sequence[Evaluation], known: float | None = None, difficulty: str = "", beside: str = ""
) -> str:
    """A cell with the accuracy, and the robust one where it was looked at; their figures are added to the table."""
    accuracy, robust = figure(here, "equivalent", difficulty, known), figure(here, "robust", difficulty)
    table.figures.append(accuracy)
    text = accuracy.text(beside=beside)
    if robust.value is None:
        return text
    table.figures.append(robust)
    return f"{text}; robust {robust.text()}"
