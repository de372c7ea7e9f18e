"""``sqale-grpo evaluate tables RUN... [--out DIR] [--compare BEFORE AFTER]``: the card's tables from evaluations.

For programs: ``read_evaluations`` (or ``Evaluation`` with rows, ``failed_run`` for what failed) gives evaluations; each
table function turns them into one ``Table``, whose ``rows`` are text, ``figures`` numbers, and ``markdown()``,
``csv()`` and ``rich()`` its forms; ``evaluate.plots`` draws the same figures.

    evaluations = read_evaluations(["runs/evaluations"])
    table = schema_size_table(evaluations, "sqale")
    table.figures[0].value, table.figures[0].low, table.figures[0].high, table.figures[0].seeds
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from sqale_grpo.env.text import harmless
from sqale_grpo.evaluate import published
from sqale_grpo.evaluate.card_tables import benchmark_table, compute_table, literals_table, schema_size_table
from sqale_grpo.evaluate.evaluations import Evaluation, benchmarks, failed_run, read_evaluations, sizes
from sqale_grpo.evaluate.identity import different_keys, told
from sqale_grpo.evaluate.other_tables import (
    behaviour_table,
    calibration_table,
    candidates_table,
    difference,
    differences_table,
    difficulty_table,
    runs_table,
)
from sqale_grpo.evaluate.table_data import Table, select, write_tables
from sqale_grpo.settings.check import ConfigError

__all__ = [
    "Evaluation",
    "Table",
    "all_tables",
    "behaviour_table",
    "benchmark_table",
    "calibration_table",
    "candidates_table",
    "compute_table",
    "difference",
    "differences_table",
    "difficulty_table",
    "failed_run",
    "literals_table",
    "main",
    "read_evaluations",
    "runs_table",
    "schema_size_table",
    "write_tables",
]

NOTE = (
    "Brackets []: 95% intervals; Wilson's for one policy, Student's t over seeds and questions for several seeds. "
    "Robust: right on the benchmark's database and on changed copies of it. "
    "§: more than 1% of the benchmark's questions could not be asked. "
    "†: not all evaluations of the policy are finished; the others are in no mean."
)


def all_tables(evaluations: Sequence[Evaluation]) -> list[Table]:
    """Every table that the evaluations can fill, in the order of the card."""
    tables = [runs_table(evaluations), benchmark_table(evaluations)]
    for benchmark in benchmarks(evaluations):
        mine = select(evaluations, benchmark=benchmark)
        if not any(each.rows for each in mine):
            continue
        tables += [schema_size_table(mine, benchmark)] if len(sizes(mine)) > 1 else []
        tables += [literals_table(mine, benchmark), compute_table(mine, benchmark)]
        if any(row["difficulty"] == published.COMPUTE_DIFFICULTY for each in mine for row in each.rows):
            tables.append(compute_table(mine, benchmark, published.COMPUTE_DIFFICULTY))
        tables += [difficulty_table(mine, benchmark), behaviour_table(mine, benchmark)]
        several = candidates_table(mine, benchmark), calibration_table(mine, benchmark)
        tables += filter(None, several)
    differences = differences_table(evaluations)
    return [*tables, differences] if differences.rows else tables


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line: prints the tables, and writes tables.md, a CSV file a table, and the plots."""
    options = _parser().parse_args(arguments)
    console = Console()
    if options.compare:
        return _compare(options.compare[0], options.compare[1], console)
    if not options.runs:
        raise ConfigError("no evaluation given; name folders of evaluations, or of runs that have some")
    evaluations = read_evaluations(options.runs)
    tables = all_tables(evaluations)
    for table in tables:
        console.print(table.rich())
        console.print()
    console.print(NOTE, markup=False, highlight=False)
    from sqale_grpo.evaluate.plots import draw_plots  # late: it loads matplotlib

    plots = draw_plots(evaluations, options.out)
    links = [f"![{plot.stem}]({plot.name})\n" for plot in plots]
    written = [*write_tables(tables, options.out, "Evaluation", [*links, NOTE]), *plots]
    console.print(harmless(f"written: {', '.join(map(str, written))}"), markup=False, highlight=False, soft_wrap=True)
    return 0


def _compare(before: str, after: str, console: Console) -> int:
    first, second = read_evaluations([before]), read_evaluations([after])
    for path, side in ((before, first), (after, second)):
        if len(side) > 1:
            raise ConfigError(f"{path} holds {len(side)} evaluations; --compare takes the folders of two")
    try:
        found = difference(first, second)
    except ValueError as error:
        raise ConfigError(str(error)) from error
    lines = [f"{found.policy}: {found.text()} points, {found.n} questions"]
    names = different_keys(first[0].identity, second[0].identity)
    if names:
        lines.append(f"not measured alike: {told([first[0].identity, second[0].identity], names)}")
    console.print(harmless("\n".join(lines)), markup=False, highlight=False, soft_wrap=True)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="sqale-grpo evaluate tables", description=__doc__.partition("\n")[0])
    parser.add_argument("runs", nargs="*", metavar="RUN", help="folder of an evaluation, of a run, or of evaluations")
    parser.add_argument("--out", type=Path, default=Path("runs/tables"), help="where the files go (runs/tables)")
    parser.add_argument("--compare", nargs=2, metavar=("BEFORE", "AFTER"), help="the paired difference of two alone")
    return parser
