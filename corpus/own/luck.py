"""Golds that a wrong query matches by luck: their rows stay the same where a part of the question is left out.

A weak question is not wrong, but it pays an answer that did not understand it.
"""

from collections.abc import Iterator

from sqlglot import exp

from sqale_grpo.corpus.gold_tables import UnparsedSql, parse
from sqale_grpo.env.limits import SqlError
from sqale_grpo.env.sandbox import Sandbox
from sqale_grpo.reward.compare import same_results

DIALECT = "sqlite"
MOST_VARIANTS = 8
MOST_ROWS = 10_000


def lucky_variant(sql: str, sandbox: Sandbox) -> str:
    """What can be left out of a query without another result, in words; empty where nothing is found."""
    try:
        tree = parse(sql)
    except UnparsedSql:
        return ""
    rows = _rows(sandbox, sql)
    if rows is None or len(rows) > MOST_ROWS:
        return ""
    for number, (left_out, variant) in enumerate(variants(tree)):
        if number == MOST_VARIANTS:
            break
        others = _rows(sandbox, variant)
        if others is not None and same_results(rows, others, ordered=False):
            return left_out
    return ""


def variants(tree: exp.Expr) -> Iterator[tuple[str, str]]:
    """(what is missing, the query without it): conditions of WHERE and HAVING, then an order turned round."""
    for number, clause in enumerate(_clauses(tree)):
        for place, condition in enumerate(_conditions(clause)):
            if isinstance(condition, exp.Not) and isinstance(condition.this, exp.Is):
                continue  # IS NOT NULL: care, and no part of the question
            yield f"the condition {condition.sql(DIALECT)}", _without(tree, number, place)
    order, limit = tree.args.get("order"), tree.args.get("limit")
    if order and limit:
        copy = tree.copy()
        for term in copy.args["order"].expressions:
            term.set("desc", not term.args.get("desc"))
        yield "the direction of the order", copy.sql(DIALECT)


def _clauses(tree: exp.Expr) -> list[exp.Expr]:
    return list(tree.find_all(exp.Where, exp.Having))


def _conditions(clause: exp.Expr) -> list[exp.Expr]:
    """The conditions that AND joins; those that join tables are none."""
    inner = clause.this
    return list(inner.flatten()) if isinstance(inner, exp.And) else [inner]


def _without(tree: exp.Expr, number: int, place: int) -> str:
    copy = tree.copy()
    clause = _clauses(copy)[number]
    kept = [condition for at, condition in enumerate(_conditions(clause)) if at != place]
    if kept:
        clause.set("this", exp.and_(*kept, copy=False))
    else:
        clause.pop()
    return copy.sql(DIALECT)


def _rows(sandbox: Sandbox, sql: str) -> list[tuple] | None:
    try:
        return sandbox.execute(sql, MOST_ROWS).rows
    except SqlError:
        return None
