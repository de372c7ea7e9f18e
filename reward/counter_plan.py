"""What a counter-database changes: the gold tables, and in them the values that the gold query compares with.

A query that drops a condition, or shifts a boundary, is told from the gold query only by rows just on the other side of
it. So the copies hold rows with the gold's literals, and with their neighbours.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

from sqlglot import exp

from sqale_grpo.env.schema import SchemaGraph
from sqale_grpo.env.text import fold_name
from sqale_grpo.reward.counter import Column, CopyPlan
from sqale_grpo.reward.mutations import NUMBER, parse_query

COMPARISONS = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.Is, exp.Like, exp.Glob)
TRANSPARENT = (exp.Lower, exp.Upper, exp.Trim, exp.Cast, exp.Paren, exp.Collate, exp.Neg, exp.Abs, exp.Round)
# strftime's format to a day with that value.
DAYS = {"%Y": "{}-07-15", "%Y-%m": "{}-15", "%m": "2020-{}-15", "%d": "2020-07-{}", "%Y-%m-%d": "{}"}


@lru_cache(maxsize=256)
def make_plan(sql: str, tables: tuple[str, ...], schema: SchemaGraph) -> CopyPlan:
    """The plan for a gold query over ``tables``; without values where sqlglot cannot read it."""
    tree = parse_query(sql)
    values: dict[Column, list[Any]] = defaultdict(list)
    joined: set[Column] = set()
    if tree is not None:
        names = Names(tree, tables, schema)
        for column, found in compared(tree, names):
            for place in names.places(column):
                values[place] += [value for value in found if value not in values[place]]
        for equality in tree.find_all(exp.EQ):
            sides = [equality.this.unnest(), equality.expression.unnest()]
            if all(isinstance(side, exp.Column) for side in sides) and all(map(names.places, sides)):
                joined |= {place for side in sides for place in names.places(side)}
    return CopyPlan(tables, {place: tuple(found) for place, found in values.items()}, frozenset(joined))


class Names:
    """Which gold tables' columns a name of the query can mean."""

    def __init__(self, tree: exp.Expr, tables: Sequence[str], schema: SchemaGraph) -> None:
        self.columns = {fold_name(table): frozenset(map(fold_name, schema.columns(table))) for table in tables}
        self.aliases: dict[str, set[str]] = defaultdict(set)
        for table in tree.find_all(exp.Table):
            if fold_name(table.name) in self.columns:
                self.aliases[fold_name(table.alias or table.name)].add(fold_name(table.name))

    def places(self, column: exp.Column) -> list[Column]:
        """The columns that a name may be: of the tables with its qualifier, else of every gold table."""
        name, qualifier = fold_name(column.name), fold_name(column.table)
        known = self.aliases.get(qualifier, ()) if qualifier else ()
        return [(table, name) for table in sorted(known or self.columns) if name in self.columns[table]]


def compared(tree: exp.Expr, names: Names) -> Iterator[tuple[exp.Column, list[Any]]]:
    """The columns that the query compares with literals, and the values to put there."""
    for node in tree.find_all(*COMPARISONS):
        for side, other in ((node.this, node.expression), (node.expression, node.this)):
            column, value = column_in(side), constant(other, names)
            if column is not None and value is not None:
                yield column, neighbours(in_column(side, value), isinstance(node, exp.Like | exp.Glob))
    for one_of in tree.find_all(exp.Between, exp.In):
        column = column_in(one_of.this)
        for each in (*one_of.expressions, one_of.args.get("low"), one_of.args.get("high")):
            value = constant(each, names)
            if column is not None and value is not None:
                yield column, neighbours(in_column(one_of.this, value), False)


def column_in(side: exp.Expr) -> exp.Column | None:
    """The column on one side of a comparison, inside functions that keep its value or part of it."""
    while isinstance(side, TRANSPARENT):
        side = side.this
    if isinstance(side, exp.TimeToStr | exp.Substring | exp.Anonymous | exp.Date | exp.TsOrDsToDate):
        return next(iter(side.find_all(exp.Column)), None)
    return side if isinstance(side, exp.Column) else None


def in_column(side: exp.Expr, value: Any) -> Any:
    """What a column must hold for an expression over it to have ``value``; the value itself where that is not known."""
    if isinstance(side, exp.Cast):
        side = side.this
    shown = next((each.this for each in side.find_all(exp.Literal) if each.is_string and "%" in each.this), None)
    return DAYS[shown].format(value) if shown in DAYS else value


def constant(side: exp.Expr | None, names: Names) -> Any:
    """The value of a literal, of a double-quoted text that is no column, or None."""
    if isinstance(side, exp.Neg):
        value = constant(side.this, names)
        return -value if isinstance(value, int | float) else None
    if isinstance(side, exp.Literal):
        if side.is_string:
            return side.this
        return (float(side.this) if "." in side.this else int(side.this)) if NUMBER.fullmatch(side.this) else None
    if isinstance(side, exp.Column) and not side.table and side.this.quoted and not names.places(side):
        return side.name
    return None


def neighbours(value: Any, pattern: bool) -> list[Any]:
    """The value, and values just beside it."""
    if isinstance(value, int | float):
        return [value, value + 1, value - 1]
    if pattern:
        core = value.replace("%", "").replace("_", "a").replace("*", "").replace("?", "a")
        return [core, core + "x", "x" + core, core[:-1]]
    return [value, value + "x"]
