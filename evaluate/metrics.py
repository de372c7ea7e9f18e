"""Metrics of evaluated episodes: accuracy, table recall, literals seen, rounds, calls, and how two runs differ."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import sqlglot
from sqlglot.tokens import TokenType

Z95 = 1.959964


def string_literals(sql: str) -> list[str]:
    """The distinct string literals of a query (SQLite dialect), in order; empty where it cannot be read.

    What stands in double quotes counts as a name.
    """
    try:
        tokens = sqlglot.tokenize(sql, read="sqlite")
    except sqlglot.errors.TokenError:
        return []
    return list(dict.fromkeys(token.text for token in tokens if token.token_type is TokenType.STRING))


def appears(literal: str, text: str) -> bool:
    """Whether ``text`` holds ``literal`` as a whole, with no letter or digit next to it (our assumption)."""
    return re.search(rf"(?<!\w){re.escape(literal)}(?!\w)", text) is not None


def literals_seen(gold_sql: str, question: str, results: Iterable[str]) -> dict[str, tuple[int, int]]:
    """(seen, all) string literals of the gold query in tool results; ``unstated``: those not in the question.

    Page: the share of the string literals the gold answer depends on that appeared in a tool result before submission.
    """
    text = "\n".join(results)
    literals = [literal for literal in string_literals(gold_sql) if literal.strip()]
    unstated = [literal for literal in literals if not appears(literal.lower(), question.lower())]
    return {
        "all": (sum(appears(x, text) for x in literals), len(literals)),
        "unstated": (sum(appears(x, text) for x in unstated), len(unstated)),
    }


def opened_all(gold_tables: Iterable[str], opened: Iterable[str]) -> bool:
    """Whether every gold table was opened; names are matched without case, as SQLite does."""
    return {t.lower() for t in gold_tables} <= {t.lower() for t in opened}


def summarize(records: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Rates and means over records as ``evaluate.harness.evaluation_record`` makes them.

    Questions whose gold result is unstable have no right answer to compare with: they stand apart, under ``unstable``.
    ValueError where no other question is left.
    """
    apart = [r for r in records if r["unstable"]]
    records = stable(records)
    n = len(records)
    if not n:
        raise ValueError(f"no episodes to summarise: {len(apart)} questions, all with an unstable gold result")
    tiers, ended = Counter(r["tier"] for r in records), Counter(r["ended_by"] for r in records)
    seen = {kind: [sum(r["literals"][kind][i] for r in records) for i in (0, 1)] for kind in ("all", "unstated")}
    return {
        "n": n,
        **{tier: tiers[tier] / n for tier in ("equivalent", "executable", "parsable", "invalid")},
        "equivalent_interval": wilson(tiers["equivalent"], n),
        "reward": sum(r["reward"] for r in records) / n,
        "table_recall": sum(r["recall"] for r in records) / n,
        "literals_seen": seen["all"][0] / seen["all"][1] if seen["all"][1] else None,
        "unstated_literals_seen": seen["unstated"][0] / seen["unstated"][1] if seen["unstated"][1] else None,
        "rounds": sum(r["rounds"] for r in records) / n,
        "calls": sum(r["calls"] for r in records) / n,
        "written_tokens": sum(r["written_tokens"] for r in records) / n,
        "ended_by": {name: count / n for name, count in sorted(ended.items())},
        "unstable": {"n": len(apart), "equivalent": sum(r["tier"] == "equivalent" for r in apart)},
    }


def stable(records: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The records of questions whose gold result is the same in every run."""
    return [r for r in records if not r["unstable"]]


def wilson(successes: int, n: int) -> tuple[float, float]:
    """Wilson's 95% interval of a rate."""
    rate, z2 = successes / n, Z95**2
    middle = (rate + z2 / (2 * n)) / (1 + z2 / n)
    half = Z95 / (1 + z2 / n) * math.sqrt(rate * (1 - rate) / n + z2 / (4 * n * n))
    return max(0.0, middle - half), min(1.0, middle + half)


def paired_difference(before: Sequence[bool], after: Sequence[bool]) -> tuple[float, tuple[float, float]]:
    """Mean of after - before over the same questions, and its 95% interval (normal approximation)."""
    n = len(before)
    if n != len(after) or n < 2:
        raise ValueError(f"a paired difference needs the same two or more questions, got {n} and {len(after)}")
    differences = [int(b) - int(a) for a, b in zip(before, after, strict=True)]
    mean = sum(differences) / n
    spread = math.sqrt(sum((d - mean) ** 2 for d in differences) / (n - 1) / n)
    return mean, (mean - Z95 * spread, mean + Z95 * spread)
