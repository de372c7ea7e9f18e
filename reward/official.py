"""The benchmarks' own verdicts, for figures that can be held against published ones.

Both look at less than ours. BIRD compares sets: neither repeated rows nor their order count. EHRSQL compares the first
100 rows as Python prints them, in any order: reals must agree to the last digit, and 1 is not 1.0.
"""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from sqale_grpo.env.sandbox import Sandbox, SqlError
from sqale_grpo.env.syntax import statements
from sqale_grpo.reward.score import GOLD_SECONDS, gold_result

Row = tuple[Any, ...]
EHRSQL_ROWS = 100


def bird_match(prediction: Sequence[Row], gold: Sequence[Row]) -> bool:
    """BIRD's comparison of two results (its ``evaluation.py``): the same set of rows."""
    return set(prediction) == set(gold)


def ehrsql_match(prediction: Sequence[Row], gold: Sequence[Row]) -> bool:
    """EHRSQL's comparison (its ``evaluate.py``): the first 100 rows, as text and sorted, are the same."""
    return printed(prediction) == printed(gold)


def printed(rows: Sequence[Row]) -> list[str]:
    """The first 100 rows as Python prints them, sorted."""
    return sorted(map(str, rows[:EHRSQL_ROWS]))


def bird_verdict(
    gold_sql: str,
    database: str | Path,
    prediction: str | None,
    sandbox: Sandbox | None = None,
    *,
    gold_seconds: float = GOLD_SECONDS,
) -> bool:
    """Is the answer right by BIRD's execution accuracy? Arguments and errors as in ``score_candidate``.

    BIRD gives both queries 30 s: pass a sandbox with that limit for its own figure.
    """
    return official_verdict(gold_sql, database, prediction, sandbox, gold_seconds, match=bird_match, rows_of=all_rows)


def ehrsql_verdict(
    gold_sql: str,
    database: str | Path,
    prediction: str | None,
    sandbox: Sandbox | None = None,
    *,
    gold_seconds: float = GOLD_SECONDS,
) -> bool:
    """Is the answer right by EHRSQL's execution accuracy? Arguments and errors as in ``score_candidate``."""
    return official_verdict(
        gold_sql, database, prediction, sandbox, gold_seconds, match=ehrsql_match, rows_of=first_rows
    )


def official_verdict(
    gold_sql: str,
    database: str | Path,
    prediction: str | None,
    sandbox: Sandbox | None,
    gold_seconds: float,
    *,
    match: Callable[[Sequence[Row], Sequence[Row]], bool],
    rows_of: Callable[[Sandbox, str], Sequence[Row]],
) -> bool:
    """Run both queries and compare them as ``match`` says; an answer that does not run is wrong.

    ``rows_of`` runs the answer and returns as many of its rows as the verdict needs.
    """
    with nullcontext(sandbox) if sandbox else Sandbox(database) as box:
        gold = gold_result(gold_sql, database, box, gold_seconds)
        try:
            return prediction is not None and match(rows_of(box, prediction), gold.result.rows)
        except SqlError:
            return False


def first_rows(sandbox: Sandbox, sql: str) -> Sequence[Row]:
    """The first 100 rows of a query that may have any number of them."""
    return sandbox.execute(sql, EHRSQL_ROWS).rows


def all_rows(sandbox: Sandbox, sql: str) -> Sequence[Row]:
    """All rows of a query; of one that has more than the sandbox fetches, its different rows. Raises SqlError.

    The scripts fetch everything, and a set does not count repetitions. More different rows than the sandbox fetches
    cannot be the gold result's, which was fetched whole.
    """
    try:
        return sandbox.execute(sql).rows
    except SqlError as error:
        if error.kind != "rows":
            raise
    statement = next(statements(sql)).removesuffix(";")
    return sandbox.execute(f"SELECT DISTINCT * FROM (\n{statement}\n)").rows
