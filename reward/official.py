"""The benchmarks' own verdicts, for figures that can be held against published ones.

Both look at less than ours. BIRD compares sets: neither repeated rows nor their order count. EHRSQL compares the first
100 rows as Python prints them, in any order: reals must agree to the last digit, and 1 is not 1.0. Both run what they
are given as Python's sqlite3 takes it (``env.plain``): a blank answer is a query without rows, ``;;`` is an error.

Sources: BIRD's ``evaluation.py`` and mini-dev's ``evaluation_ex.py`` (one judgement), EHRSQL's ``evaluate.py``. Left as
it is in the sandbox: what would write is wrong here, where a script would run it, and so is what takes more memory
than ``MEMORY_MB``.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from sqale_grpo.env.budget import Budget
from sqale_grpo.env.limits import LARGEST, Query
from sqale_grpo.env.sandbox import Limits, QueryResult, Sandbox, SqlError
from sqale_grpo.reward.ehrsql import ABSTAINS, as_executed

Row = tuple[Any, ...]
EHRSQL_ROWS = 100
BIRD_SECONDS = 30.0  # for the answer and the gold query together
EHRSQL_SECONDS = 60.0  # for each of the two
MEMORY_MB = 1024


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
    seconds: float = BIRD_SECONDS,
) -> bool:
    """Is the answer right by BIRD's execution accuracy? No answer is a blank one there.

    ``sandbox``: whose workers run it. ``seconds``: for both queries together. An answer, or a gold query, that does not
    run to its end is wrong. Raises SqlError where the machine failed.
    """
    budget = Budget(most_failures=1, failures=1, steps=2 * LARGEST, seconds=seconds, size=2 * LARGEST)
    found = run_plain(database, [prediction or "", gold_sql], "different", sandbox, seconds, budget)
    return bird_decision(found, budget.seconds)


def bird_decision(found: Sequence[QueryResult | SqlError], seconds_left: float) -> bool:
    """BIRD's verdict on answer and gold query, of which the second did not run after the first failed."""
    results = [each for each in found if isinstance(each, QueryResult)]
    return len(results) == 2 and seconds_left >= 0 and bird_match(results[0].rows, results[1].rows)


def ehrsql_verdict(
    gold_sql: str,
    database: str | Path,
    prediction: str | None,
    sandbox: Sandbox | None = None,
    *,
    seconds: float = EHRSQL_SECONDS,
) -> bool:
    """Is the answer right by EHRSQL's execution accuracy, after its script has rewritten it and the gold query?

    No answer is wrong there, and so is one that abstains: the question has a gold query. ``seconds``: for each of the
    two. Else as ``bird_verdict``.
    """
    queries = [as_executed(text) for text in (prediction, gold_sql) if text is not None]
    if len(queries) < 2 or ABSTAINS in queries:
        return False
    answer, gold = run_plain(database, queries, "head", sandbox, seconds)
    if isinstance(answer, SqlError) or isinstance(gold, SqlError):
        return False
    return ehrsql_match(answer.rows, gold.rows)


def run_plain(
    database: str | Path,
    queries: Sequence[str],
    keep: Literal["head", "different"],
    sandbox: Sandbox | None,
    seconds: float,
    budget: Budget | None = None,
) -> list[QueryResult | SqlError]:
    """Run queries as a script would, on one fresh connection. Raises SqlError where the machine failed."""
    # The scripts know no limit but their time: a step is not a second.
    largest = Limits(
        seconds=seconds,
        steps=LARGEST,
        length=10**9,  # this and the next are SQLite's own
        like_pattern=50_000,
        memory_mb=MEMORY_MB,
        result_mb=MEMORY_MB,
    )
    limits = largest if sandbox is None else replace(largest, memory_mb=max(MEMORY_MB, sandbox.limits.memory_mb))
    pool, immutable = (None, False) if sandbox is None else (sandbox.pool, sandbox.immutable)
    with Sandbox(database, limits, pool, immutable) as box:
        found = box.ask([Query(sql, EHRSQL_ROWS, False, counts=True, plain=keep) for sql in queries], budget)
    for each in found:
        if isinstance(each, SqlError) and each.kind == "machine":
            raise each
    return found
