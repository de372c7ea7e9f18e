"""Votes: the results of several candidates of one question, counted by the reward's own comparison.

Candidates agree where their results do, however their SQL is written. Rows count as a sequence where most of the
candidates' queries order them; who gave no answer, or one that does not run, has no vote, and counts among all.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from sqale_grpo.env.limits import QueryResult, SqlError
from sqale_grpo.env.sandbox import Sandbox
from sqale_grpo.env.syntax import is_ordered
from sqale_grpo.reward.compare import counted, first_out_of_order, match_rows, shown
from sqale_grpo.reward.digest import digest, result_classes


@dataclass(frozen=True)
class Vote:
    """A result, the candidates that gave it (numbers from 0, the first one's ``sql``), and their share of all."""

    candidates: tuple[int, ...]
    share: float
    sql: str
    result: QueryResult


@dataclass(frozen=True)
class Votes:
    """Different results, the most frequent first and of equals the earlier; ``ordered``: their rows are sequences."""

    found: list[Vote]
    ordered: bool


def count_votes(answers: Sequence[str | None], sandbox: Sandbox) -> Votes:
    """Run the candidates' answers, each text once and up to the limit of rows, and count equal results."""
    texts = list(dict.fromkeys(sql for sql in answers if sql is not None))
    ran = dict(zip(texts, sandbox.execute_many([(sql, sandbox.limits.rows) for sql in texts]), strict=True))
    results = [None if sql is None or isinstance(ran[sql], SqlError) else ran[sql] for sql in answers]
    voted = [sql for sql, result in zip(answers, results, strict=True) if sql is not None and result is not None]
    ordered = 2 * sum(map(is_ordered, voted)) > len(voted)
    classes = result_classes([digest(each, ordered) if isinstance(each, QueryResult) else None for each in results])
    found = []
    for number in dict.fromkeys(each for each in classes if each is not None):
        members = tuple(place for place, each in enumerate(classes) if each == number)
        sql, result = answers[members[0]], results[members[0]]
        assert sql is not None and isinstance(result, QueryResult)
        found.append(Vote(members, len(members) / len(answers), sql, result))
    return Votes(sorted(found, key=lambda vote: (-len(vote.candidates), vote.candidates)), ordered)


def what_differs(first: QueryResult, second: QueryResult, ordered: bool) -> str:
    """One sentence on how two results are not the same, with a row of each."""
    if len(first.columns) != len(second.columns):
        return (
            f"the first has {counted(len(first.columns), 'column')} ({', '.join(first.columns)}), the second "
            f"{len(second.columns)} ({', '.join(second.columns)})"
        )
    match = match_rows(first.rows, second.rows)
    parts = []
    for name, result, row in (("first", first, match.extra), ("second", second, match.missing)):
        if alone := len(result.rows) - match.size:
            parts.append(f"{alone} of {counted(len(result.rows), 'row')} only in the {name}, e.g. {shown(row)}")
    if parts:
        return "; ".join(parts)
    place = first_out_of_order(first.rows, second.rows) if ordered else None
    if place is None:
        return "numbers that are nearly the same"
    return (
        f"the same rows in another order: row {place + 1} is {shown(first.rows[place])} in the first, "
        f"{shown(second.rows[place])} in the second"
    )
