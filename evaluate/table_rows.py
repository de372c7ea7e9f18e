"""What the tables have in common: names of sizes, benchmarks and policies, and which evaluations a row is about."""

from collections.abc import Sequence

from evaluate import published
from evaluate.evaluations import Evaluation, policies, sizes
from evaluate.figures import NOTHING, figure
from evaluate.table_data import Table

SIZE_NAMES = {"gold": "Gold tables only", "full": "Full schema", "sampled": "Sampled as in training"}


def size_name(tables: str) -> str:
    """A size of the schema as the card words it."""
    number = tables.partition(":")[2]
    return f"+ {number} distractor tables" if number else SIZE_NAMES.get(tables, tables)


def benchmark_name(benchmark: str) -> str:
    """A benchmark as the card words it."""
    return published.BENCHMARKS.get(benchmark, benchmark)


def select(
    evaluations: Sequence[Evaluation], policy: str = "", benchmark: str = "", tables: str = ""
) -> list[Evaluation]:
    """Those of a policy, of a benchmark, of a size; empty: any."""
    return [
        each
        for each in evaluations
        if policy in ("", each.policy) and benchmark in ("", each.benchmark) and tables in ("", each.tables)
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
        if (here := select(evaluations, name, tables=size))
    ]


def accuracy_and_recall(
    table: Table, here: Sequence[Evaluation], known: published.Published | None = None, difficulty: str = ""
) -> str:
    """A cell with both; their figures are added to the table."""
    accuracy = figure(here, "equivalent", difficulty, known.accuracy if known else None)
    recall = figure(here, "table_recall", difficulty, known.recall if known else None)
    table.figures += [accuracy, recall]
    return accuracy.text(beside=NOTHING if recall.value is None else f"({recall.value * 100:.1f})")
