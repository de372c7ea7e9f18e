"""Figures of a prepared corpus for a person to read: ``sqale-grpo corpus inspect DIR``."""

from collections import Counter
from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from sqale_grpo.corpus.preparation_shown import summary_rows
from sqale_grpo.corpus.prepared import PreparedCorpus
from sqale_grpo.corpus.question import Question
from sqale_grpo.env.text import harmless

QUANTILES = (0, 5, 25, 50, 75, 95, 100)
SAMPLES = 10

Row = tuple[str, ...]


def print_report(corpus: PreparedCorpus, lengths: Sequence[Row], console: Console | None = None) -> None:
    """Print every figure. ``lengths`` are (bucket, longest masked SQL, questions, share), reckoned by the caller."""
    console = console or Console()
    console.print(Text(harmless(f"{corpus.name} ({corpus.split}), {corpus.directory}")))
    counts = [(label, f"{count:,}") for label, count in summary_rows(corpus.summary)]
    _print(console, ("prepared", "number"), counts)
    _print(console, ("difficulty", "questions", "share"), shares(corpus.column("difficulty"), blank="(not given)"))
    _print(console, ("gold result", "questions", "share"), gold_results(corpus))
    _print(console, ("bucket", "masked SQL up to, characters", "questions", "share"), lengths)
    _print(console, ("quantiles", "least", *(f"{q}%" for q in QUANTILES[1:-1]), "most"), sizes(corpus))
    for question in samples(corpus):
        asked = " ".join(filter(None, (question.text, question.evidence)))
        shown = f"\n{question.question_id} on {question.db_id}\n  {asked}\n  {question.gold_sql}"
        console.print(Text(harmless(shown)))  # a data set's words are shown, never obeyed


def gold_results(corpus: PreparedCorpus) -> list[Row]:
    """(kind of gold result, questions, share): empty ones, and unstable ones by cause."""
    empty = ["no rows" if n == 0 else "" for n in corpus.column("n_rows")]
    unstable = [f"unstable: {cause}" if cause else "" for cause in corpus.unstable()]
    return [row for values in (empty, unstable) for row in shares(values)]


def sizes(corpus: PreparedCorpus) -> list[Row]:
    """(what, quantile, …) of the databases and of the questions."""
    databases = corpus.databases()
    counted = [record["rows"] for record in databases if record["rows"] >= 0]
    return [
        _quantiles("tables of a database", (record["tables"] for record in databases)),
        _quantiles("foreign keys of a database", (record["foreign_keys"] for record in databases)),
        _quantiles("rows of a database", counted),
        _quantiles("kilobytes of a database", (record["bytes"] // 1000 for record in databases)),
        _quantiles("questions of a database", Counter(corpus.column("db_id")).values()),
        _quantiles("gold tables of a question", map(len, corpus.column("gold_tables"))),
        _quantiles("rows of a gold result", corpus.column("n_rows")),
        _quantiles("usable phrasings of a question", map(len, corpus.column("phrasings"))),
    ]


def samples(corpus: PreparedCorpus) -> list[Question]:
    """Ten questions, evenly spaced over the corpus."""
    count = min(SAMPLES, len(corpus))
    return [corpus.question(i * len(corpus) // count) for i in range(count)]


def shares(values: Iterable[str], blank: str = "") -> list[Row]:
    """(value, how often, share), the most frequent first; empty values as ``blank``, or left out without one."""
    values = list(values)
    counted = Counter(value or blank for value in values)
    return [(value, f"{n:,}", f"{n / len(values):.1%}") for value, n in counted.most_common() if value]


def _quantiles(label: str, values: Iterable[int]) -> Row:
    ordered = sorted(values)
    if not ordered:
        return (label, *("" for _ in QUANTILES))
    return (label, *(f"{ordered[round(q / 100 * (len(ordered) - 1))]:,}" for q in QUANTILES))


def _print(console: Console, header: Sequence[str], rows: Sequence[Row]) -> None:
    if not rows:
        return
    table = Table(*header)
    for column in table.columns[1:]:
        column.justify = "right"
    for row in rows:
        table.add_row(*(Text(harmless(cell)) for cell in row))
    console.print(table)
