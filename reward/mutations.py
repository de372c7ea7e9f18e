"""Mutations of a gold query: the same query with one mistake that a policy makes, through its syntax tree.

``MUTATIONS`` is the set. Each entry changes one place, drawn by chance; a kind that has no place in a query gives
nothing. A mutant need not be wrong (a dropped condition may follow from another one): whoever uses mutants proves that
they are, on databases where their result differs from the gold query's. docs/reward.md lists the kinds.
"""

import random
import re
from collections.abc import Callable
from dataclasses import dataclass

import sqlglot
from sqlglot import exp

from sqale_grpo.env.schema import SchemaGraph
from sqale_grpo.env.text import fold_name
from sqale_grpo.reward.statement import syntax_trees

FLIPPED = {exp.EQ: exp.NEQ, exp.NEQ: exp.EQ, exp.GT: exp.LT, exp.LT: exp.GT, exp.GTE: exp.LTE, exp.LTE: exp.GTE}
SHIFTED = {exp.GT: exp.GTE, exp.GTE: exp.GT, exp.LT: exp.LTE, exp.LTE: exp.LT}
SWAPPED = {exp.Min: exp.Max, exp.Max: exp.Min, exp.Sum: exp.Avg, exp.Avg: exp.Sum}
NUMBER = re.compile(r"\d+(\.\d+)?")


@dataclass(frozen=True)
class Mutant:
    """A changed query and its kind, a key of ``MUTATIONS``."""

    kind: str
    sql: str


@dataclass(frozen=True)
class Place:
    """What a mutation needs: a copy of the tree that it may change, the schema, and its chance."""

    tree: exp.Expr
    schema: SchemaGraph
    chance: random.Random

    def pick(self, *kinds: type[exp.Expr], inside: tuple[type[exp.Expr], ...] = ()) -> exp.Expr | None:
        """One node of these kinds, at a place inside one of ``inside`` where given; None where there is none."""
        nodes = [node for node in self.tree.find_all(*kinds) if not inside or node.find_ancestor(*inside)]
        return self.chance.choice(nodes) if nodes else None

    def rename(self, column: exp.Expr | None) -> bool:
        """Make a column another one of its table; False where that is not possible."""
        if not isinstance(column, exp.Column) or isinstance(column.this, exp.Star):
            return False
        table = table_of(column, self.schema)
        others = (
            [name for name in self.schema.columns(table) if fold_name(name) != fold_name(column.name)] if table else []
        )
        if others:
            column.set("this", exp.to_identifier(self.chance.choice(others), quoted=True))
        return bool(others)


def parse_query(sql: str) -> exp.Query | None:
    """The syntax tree of one query, None where sqlglot cannot read it."""
    try:
        trees = syntax_trees(sql)
    except (sqlglot.errors.SqlglotError, RecursionError, ValueError):
        return None
    return trees[0] if len(trees) == 1 and isinstance(trees[0], exp.Query) else None


def written(tree: exp.Expr) -> str:
    """The tree as SQLite's SQL."""
    return tree.sql(dialect="sqlite")


def mutants(sql: str, schema: SchemaGraph, chance: random.Random) -> list[Mutant]:
    """At most one mutant of each kind, none with the text of the query itself or of another one."""
    tree = parse_query(sql)
    if tree is None:
        return []
    found: dict[str, Mutant] = {}
    seen = {written(tree).casefold()}
    for kind, mutate in MUTATIONS.items():
        changed = mutate(Place(tree.copy(), schema, random.Random(chance.random())))
        text = written(changed) if changed is not None else ""
        if text and text.casefold() not in seen:
            seen.add(text.casefold())
            found[kind] = Mutant(kind, text)
    return list(found.values())


def sources(select: exp.Expr, schema: SchemaGraph) -> dict[str, str]:
    """Folded alias to declared table, of the base tables in a SELECT's FROM."""
    entries = [select.args.get("from_"), *(select.args.get("joins") or [])]
    tables = [entry.this for entry in entries if entry is not None and isinstance(entry.this, exp.Table)]
    named = ((fold_name(table.alias or table.name), schema.find(table.name)) for table in tables)
    return {alias: table for alias, table in named if table}


def table_of(column: exp.Column, schema: SchemaGraph) -> str | None:
    """The base table that a column is of, by the SELECTs around it, the innermost first; None where that is open."""
    select = column.find_ancestor(exp.Select)
    while select is not None:
        known = sources(select, schema)
        if column.table:
            if fold_name(column.table) in known:
                return known[fold_name(column.table)]
        else:
            for table in known.values():
                if fold_name(column.name) in map(fold_name, schema.columns(table)):
                    return table
        select = select.find_ancestor(exp.Select)
    return None


def drop_where(place: Place) -> exp.Expr | None:
    """A WHERE clause less."""
    where = place.pick(exp.Where)
    return where and (where.pop(), place.tree)[1]


def drop_condition(place: Place) -> exp.Expr | None:
    """One conjunct of a WHERE or HAVING less."""
    chains = [each for each in place.tree.find_all(exp.And) if each.find_ancestor(exp.Where, exp.Having)]
    sides = [(each, side) for each in chains for side in ("this", "expression")]
    sides = [(each, side) for each, side in sides if not isinstance(each.args[side], exp.And)]
    if not sides:
        return None
    both, side = place.chance.choice(sides)
    both.replace(both.args["expression" if side == "this" else "this"].copy())
    return place.tree


def and_to_or(place: Place) -> exp.Expr | None:
    """AND between two conditions becomes OR."""
    both = place.pick(exp.And, inside=(exp.Where, exp.Having))
    if both is None:
        return None
    both.replace(exp.Paren(this=exp.Or(this=both.this.copy(), expression=both.expression.copy())))
    return place.tree


def exchanged(place: Place, pairs: dict, *inside: type[exp.Expr]) -> exp.Expr | None:
    """One node of a kind in ``pairs`` becomes the kind that it is paired with."""
    nodes = [
        node for node in place.tree.find_all(*pairs) if not inside or node.find_ancestor(*inside, exp.Join) is not None
    ]
    nodes = [node for node in nodes if not inside or not isinstance(node.find_ancestor(*inside, exp.Join), exp.Join)]
    if not nodes:
        return None
    node = place.chance.choice(nodes)
    arguments = {"this": node.this.copy()}
    if node.args.get("expression") is not None:
        arguments["expression"] = node.expression.copy()
    node.replace(pairs[type(node)](**arguments))
    return place.tree


def flip_condition(place: Place) -> exp.Expr | None:
    """= becomes <>, < becomes >, and back; not in ON."""
    return exchanged(place, FLIPPED, exp.Where, exp.Having, exp.Case, exp.If)


def shift_boundary(place: Place) -> exp.Expr | None:
    """> becomes >=, < becomes <=, and back."""
    return exchanged(place, SHIFTED, exp.Where, exp.Having, exp.Case, exp.If)


def add_one(place: Place) -> exp.Expr | None:
    """A number in WHERE or HAVING grows by one."""
    numbers = [
        each
        for each in place.tree.find_all(exp.Literal)
        if not each.is_string and NUMBER.fullmatch(each.this) and each.find_ancestor(exp.Where, exp.Having)
    ]
    if not numbers:
        return None
    number = place.chance.choice(numbers)
    grown = float(number.this) + 1 if "." in number.this else int(number.this) + 1
    number.replace(exp.Literal.number(grown))
    return place.tree


def other_output(place: Place) -> exp.Expr | None:
    """Another column of the same table in the outermost SELECT's list."""
    select = place.tree.find(exp.Select)
    columns = [column for each in select.expressions for column in each.find_all(exp.Column)] if select else []
    return place.tree if columns and place.rename(place.chance.choice(columns)) else None


def other_condition(place: Place) -> exp.Expr | None:
    """Another column of the same table in WHERE or HAVING."""
    return place.tree if place.rename(place.pick(exp.Column, inside=(exp.Where, exp.Having))) else None


def drop_on(place: Place) -> exp.Expr | None:
    """A join without its condition."""
    joins = [join for join in place.tree.find_all(exp.Join) if join.args.get("on")]
    if not joins:
        return None
    place.chance.choice(joins).set("on", None)
    return place.tree


def other_join(place: Place) -> exp.Expr | None:
    """A join on another column of one side's table."""
    conditions = [join.args["on"] for join in place.tree.find_all(exp.Join) if join.args.get("on")]
    columns = [column for each in conditions for column in each.find_all(exp.Column)]
    return place.tree if columns and place.rename(place.chance.choice(columns)) else None


def other_group(place: Place) -> exp.Expr | None:
    """GROUP BY another column of the same table."""
    return place.tree if place.rename(place.pick(exp.Column, inside=(exp.Group,))) else None


def dropped(place: Place, kind: type[exp.Expr]) -> exp.Expr | None:
    """One clause of a kind less."""
    node = place.pick(kind)
    return node and (node.pop(), place.tree)[1]


def drop_order(place: Place) -> exp.Expr | None:
    """The ORDER BY of the whole query less."""
    if place.tree.args.get("order") is None:
        return None
    place.tree.set("order", None)
    return place.tree


def turn_order(place: Place) -> exp.Expr | None:
    """ASC becomes DESC and back."""
    term = place.pick(exp.Ordered)
    if term is None:
        return None
    term.set("desc", not term.args.get("desc"))
    return place.tree


def raise_limit(place: Place) -> exp.Expr | None:
    """LIMIT n becomes LIMIT n + 1."""
    limits = [each for each in place.tree.find_all(exp.Limit) if isinstance(each.expression, exp.Literal)]
    if not limits:
        return None
    limit = place.chance.choice(limits)
    limit.set("expression", exp.Literal.number(int(limit.expression.this) + 1))
    return place.tree


def other_set(place: Place) -> exp.Expr | None:
    """UNION becomes UNION ALL and back; of INTERSECT and EXCEPT the first part is left."""
    node = place.pick(exp.Union, exp.Intersect, exp.Except)
    if node is None:
        return None
    if isinstance(node, exp.Union):
        node.set("distinct", not node.args.get("distinct"))
        return place.tree
    first = node.this.copy()
    if node is place.tree:
        return first
    node.replace(first)
    return place.tree


def turn_distinct(place: Place) -> exp.Expr | None:
    """SELECT becomes SELECT DISTINCT, where nothing is aggregated, and back."""
    select = place.tree.find(exp.Select)
    if select is None:
        return None
    if select.args.get("distinct"):
        select.set("distinct", None)
    elif select.args.get("group") or any(each.find(exp.AggFunc) for each in select.expressions):
        return None
    else:
        select.set("distinct", exp.Distinct())
    return place.tree


def outer_join(place: Place) -> exp.Expr | None:
    """JOIN becomes LEFT JOIN and back."""
    joins = [join for join in place.tree.find_all(exp.Join) if join.args.get("on") and join.side in ("", "LEFT")]
    if not joins:
        return None
    join = place.chance.choice(joins)
    join.set("side", None if join.side else "LEFT")
    join.set("kind", None)
    return place.tree


def turn_count(place: Place) -> exp.Expr | None:
    """count(x) becomes count(DISTINCT x), for * a column of a table, and back."""
    count = place.pick(exp.Count)
    if count is None:
        return None
    if isinstance(count.this, exp.Distinct):
        count.set("this", count.this.expressions[0].copy())
        return place.tree
    select = count.find_ancestor(exp.Select)
    known = list(sources(select, place.schema).items()) if select else []
    if isinstance(count.this, exp.Column):
        counted: exp.Expr = count.this.copy()
    elif known:
        alias, table = place.chance.choice(known)
        name = place.chance.choice(place.schema.columns(table))
        counted = exp.column(exp.to_identifier(name, quoted=True), table=alias)
    else:
        return None
    count.set("this", exp.Distinct(expressions=[counted]))
    return place.tree


Mutation = Callable[[Place], exp.Expr | None]
MUTATIONS: dict[str, Mutation] = {
    "WHERE dropped": drop_where,
    "condition dropped": drop_condition,
    "AND to OR": and_to_or,
    "condition flipped": flip_condition,
    "boundary shifted": shift_boundary,
    "number + 1": add_one,
    "other column in SELECT": other_output,
    "other column in WHERE": other_condition,
    "join condition dropped": drop_on,
    "join on another column": other_join,
    "GROUP BY another column": other_group,
    "GROUP BY dropped": lambda place: dropped(place, exp.Group),
    "HAVING dropped": lambda place: dropped(place, exp.Having),
    "min/max, sum/avg swapped": lambda place: exchanged(place, SWAPPED),
    "set operation changed": other_set,
    "ASC/DESC turned": turn_order,
    "LIMIT + 1": raise_limit,
    "LIMIT dropped": lambda place: dropped(place, exp.Limit),
    "DISTINCT turned": turn_distinct,
    "JOIN to LEFT JOIN": outer_join,
    "COUNT to COUNT DISTINCT": turn_count,
    "ORDER BY dropped": drop_order,
}
# Mistakes that a person might not call one: the question seldom says which is meant. Not in the headline figures.
SLIGHT = frozenset({"DISTINCT turned", "JOIN to LEFT JOIN", "COUNT to COUNT DISTINCT", "ORDER BY dropped"})
