"""Rewrites of a gold query that keep its meaning, to measure how often the reward refuses a right answer."""

import random

from sqlglot import exp

from sqale_grpo.env.syntax import statements
from sqale_grpo.reward.mutations import Mutant, parse_query, written


def rewrites(sql: str, chance: random.Random) -> list[Mutant]:
    """The query written in other ways; each is right on every database."""
    tree = parse_query(sql)
    if tree is None:
        return []
    found = [Mutant("written by sqlglot", written(tree))]
    for kind, rewrite in REWRITES.items():
        changed = rewrite(tree.copy(), chance)
        if changed is not None:
            found.append(Mutant(kind, written(changed)))
    if tree.args.get("order") is None and isinstance(tree, exp.Select):
        alone = next(statements(sql)).rstrip().removesuffix(";")  # a comment after the semicolon would close nothing
        found.append(Mutant("wrapped", f"SELECT * FROM (\n{alone}\n)"))
    return found


def swap_conditions(tree: exp.Expr, _: random.Random) -> exp.Expr | None:
    """``a AND b`` becomes ``b AND a``."""
    found = [where for where in tree.find_all(exp.Where) if isinstance(where.this, exp.And)]
    for where in found:
        where.set("this", exp.And(this=where.this.expression.copy(), expression=where.this.this.copy()))
    return tree if found else None


def turn_equalities(tree: exp.Expr, _: random.Random) -> exp.Expr | None:
    """``a.x = b.y`` becomes ``b.y = a.x``; not where the collation may come from one side alone."""
    found = [
        node
        for node in tree.find_all(exp.EQ)
        if isinstance(node.this, exp.Column)
        and isinstance(node.expression, exp.Column)
        and node.find_ancestor(exp.Join)
    ]
    for node in found:
        node.replace(exp.EQ(this=node.expression.copy(), expression=node.this.copy()))
    return tree if found else None


def swap_tables(tree: exp.Expr, _: random.Random) -> exp.Expr | None:
    """``a JOIN b ON …`` becomes ``b JOIN a ON …``."""
    for select in tree.find_all(exp.Select):
        joins, start = select.args.get("joins") or [], select.args.get("from_")
        if len(joins) != 1 or start is None or not plain_join(joins[0]) or select.find(exp.Star):
            continue
        if isinstance(start.this, exp.Table) and isinstance(joins[0].this, exp.Table):
            first, second = start.this.copy(), joins[0].this.copy()
            start.set("this", second)
            joins[0].set("this", first)
            return tree
    return None


def plain_join(join: exp.Expr) -> bool:
    """An inner join with ON."""
    return bool(join.args.get("on")) and not join.args.get("side") and join.args.get("method") != "NATURAL"


def conditions_to_where(tree: exp.Expr, _: random.Random) -> exp.Expr | None:
    """ON conditions of inner joins move to WHERE."""
    for select in tree.find_all(exp.Select):
        joins = select.args.get("joins") or []
        if joins and all(map(plain_join, joins)):
            moved = [exp.paren(join.args["on"].copy()) for join in joins]
            for join in joins:
                join.set("on", None)
            where = select.args.get("where")
            kept = [exp.paren(where.this.copy())] if where is not None else []
            select.set("where", exp.Where(this=exp.and_(*kept, *moved)))
            return tree
    return None


def distinct_to_group(tree: exp.Expr, _: random.Random) -> exp.Expr | None:
    """``SELECT DISTINCT a, b`` becomes ``SELECT a, b … GROUP BY a, b``; the ORDER BY must be over the columns alone."""
    if not isinstance(tree, exp.Select) or not tree.args.get("distinct") or tree.args.get("group"):
        return None
    if tree.find(exp.AggFunc, exp.Star, exp.Window) or tree.args.get("limit") or tree.args.get("order"):
        return None
    if not all(isinstance(each.unalias(), exp.Column) for each in tree.expressions):
        return None
    tree.set("distinct", None)
    tree.set("group", exp.Group(expressions=[each.unalias().copy() for each in tree.expressions]))
    return tree


def open_between(tree: exp.Expr, chance: random.Random) -> exp.Expr | None:
    """``x BETWEEN a AND b`` becomes ``x >= a AND x <= b``."""
    found = list(tree.find_all(exp.Between))
    if not found:
        return None
    node = chance.choice(found)
    low = exp.GTE(this=node.this.copy(), expression=node.args["low"].copy())
    high = exp.LTE(this=node.this.copy(), expression=node.args["high"].copy())
    node.replace(exp.paren(exp.And(this=low, expression=high)))
    return tree


REWRITES = {
    "conditions swapped": swap_conditions,
    "sides of = swapped": turn_equalities,
    "tables of the join swapped": swap_tables,
    "ON moved to WHERE": conditions_to_where,
    "DISTINCT to GROUP BY": distinct_to_group,
    "BETWEEN opened": open_between,
}
