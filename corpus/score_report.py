"""``sqale-grpo corpus score``: the mutation score of a prepared corpus, for a person or, with --json, for a program."""

import json
import os
from collections.abc import Iterator
from typing import Any

from rich.console import Console
from rich.table import Table

from sqale_grpo.corpus.mutation_score import PaidShare, QuestionScore, Wrong, measure
from sqale_grpo.corpus.prepared import PreparedCorpus
from sqale_grpo.env.chance import rng
from sqale_grpo.reward.constants import CONSTANT

ROWS = ((0, "no rows"), (1, "1 row"), (5, "2-5 rows"), (20, "6-20 rows"), (None, "over 20 rows"))
Measured = list[tuple[int, QuestionScore | None]]


def print_score(corpus: PreparedCorpus, questions: int | None, seed: int, workers: int | None, as_json: bool) -> None:
    """Measure ``questions`` stable questions, drawn by ``seed`` (None: all), and print the figures."""
    stable = corpus.stable_indices()
    asked = stable if questions is None else sorted(rng("score", seed).sample(stable, min(questions, len(stable))))
    measured = sorted(measure(corpus, asked, workers or os.cpu_count() or 1))
    figures = [*breakdown(corpus, measured), summary(corpus, measured)]
    if as_json:
        for figure in figures:
            print(json.dumps(figure))
        return
    console = Console()
    for by in dict.fromkeys(figure["by"] for figure in figures[:-1]):
        print_table(console, by, [figure for figure in figures[:-1] if figure["by"] == by])
    last, seen = figures[-1], figures[-1]["seen"]
    console.print(
        f"{last['questions']:,} questions ({last['with_copies']:,} with counter-databases): of {last['wrong']:,} wrong "
        f"queries {last['paid_wrong_before']:.1%} are taken for right, {last['paid_wrong_after']:.1%} with the "
        f"counter-databases (of {seen['wrong']:,} that their choice saw {seen['paid_wrong_before']:.1%} and "
        f"{seen['paid_wrong_after']:.1%}); {last['refused']} of {last['rewrites']:,} right ones are refused"
    )


def print_table(console: Console, by: str, figures: list[dict[str, Any]]) -> None:
    """One breakdown."""
    table = Table(by, "wrong queries", "taken for right", "with counter-databases")
    for column in table.columns[1:]:
        column.justify = "right"
    for each in figures:
        shares = (f"{each[name]:.1%} ({each[count]})" for name, count in PAID)
        table.add_row(str(each["value"]), f"{each['wrong']:,}", *shares)
    console.print(table)


PAID = (("paid_wrong_before", "paid_before"), ("paid_wrong_after", "paid_after"))


def breakdown(corpus: PreparedCorpus, measured: Measured) -> Iterator[dict[str, Any]]:
    """The figures by mutation, by rows of the gold result and by difficulty; apart, those that the choice saw."""
    rows, difficulty = corpus.column("n_rows"), corpus.column("difficulty")
    groups: dict[tuple[str, str], list[Wrong]] = {}
    for index, score in measured:
        for mutant in score.wrong if score else ():
            if mutant.kind == CONSTANT:
                keys = [("reads no table", "the gold result's rows")]
            elif mutant.seen:
                keys = [("mutation that the choice saw", mutant.kind)]
            else:
                classes = rows_name(rows[index]), difficulty[index] or "(not given)"
                keys = [("mutation", mutant.kind), *zip(("gold result", "difficulty"), classes, strict=True)]
            for key in keys:
                groups.setdefault(key, []).append(mutant)
    order = [name for _, name in ROWS]
    for (by, value), mutants in sorted(
        groups.items(), key=lambda each: (each[0][0], order.index(each[0][1]) if each[0][1] in order else 0, each[0][1])
    ):
        yield {"by": by, "value": value, **shares(PaidShare.of(mutants))}


def rows_name(count: int) -> str:
    """The class of a gold result by its number of rows."""
    return next(name for most, name in ROWS if most is None or count <= most)


def shares(share: PaidShare) -> dict[str, Any]:
    """A share as the figures of one line."""
    return {
        "wrong": share.wrong,
        "paid_before": share.before,
        "paid_after": share.after,
        "paid_wrong_before": share.before / share.wrong if share.wrong else 0.0,
        "paid_wrong_after": share.after / share.wrong if share.wrong else 0.0,
    }


def summary(corpus: PreparedCorpus, measured: Measured) -> dict[str, Any]:
    """The last line: all questions together, and all mutants that the choice did not see; ``seen``: that it saw."""
    scores = [score for _, score in measured if score is not None]
    mutants = [mutant for score in scores for mutant in score.wrong if mutant.kind != CONSTANT]
    copies = corpus.column("copies")
    rewrites, refused = sum(each.rewrites for each in scores), [sql for each in scores for sql in each.refused]
    return {
        "questions": len(measured),
        "not_measured": len(measured) - len(scores),
        "with_copies": sum(bool(copies[index]) for index, _ in measured),
        **shares(PaidShare.of(mutant for mutant in mutants if not mutant.seen)),
        "seen": shares(PaidShare.of(mutant for mutant in mutants if mutant.seen)),
        "rewrites": rewrites,
        "refused": len(refused),
        "refused_right": len(refused) / rewrites if rewrites else 0.0,
        "refused_queries": refused[:20],
    }
