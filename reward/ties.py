"""Ties: which rows of an ordered gold result have equal order keys, so that their sequence among themselves is free.

The query runs once more with its order keys as further columns, and SQLite ranks its rows by them: equal ranks are
equal keys, under the columns' own collations and rules for NULL. Rows and ranks are then held against the gold result;
where they do not fit (LIMIT through a tie, DISTINCT over other columns than the keys, a text that sqlglot cannot read
or writes with another meaning), every row counts as a group of its own: the exact sequence.
"""

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any

import sqlglot
from sqlglot import exp

from sqale_grpo.env.syntax import statements
from sqale_grpo.env.text import fold_name
from sqale_grpo.reward.compare import same_results
from sqale_grpo.reward.statement import syntax_trees

Row = tuple[Any, ...]
RANKED = "rows with order keys"  # a name that no table has


def tie_sizes(sql: str, rows: Sequence[Row], run: Callable[[str], Sequence[Row] | None]) -> tuple[int, ...]:
    """Sizes of the groups of rows with equal order keys, in order; () where every row is a group of its own.

    ``rows``: the result of ``sql``, which has an ORDER BY. ``run`` executes a statement and returns its rows, or None
    where it fails.
    """
    if len(rows) < 2:
        return ()
    width = len(rows[0])
    # An alias inside an expression stands for a table's column of that name first, which only SQLite knows.
    readings = (ranked_query(sql, width, aliases) for aliases in (False, True))
    ranked = next((found for text in readings if text and (found := run(text)) is not None), None)
    if ranked is None or len(ranked) != len(rows):
        return ()
    by_rank = sorted(ranked, key=lambda row: row[-1])
    groups = [[row[:width] for row in group] for _, group in groupby(by_rank, key=lambda row: row[-1])]
    start = 0
    for group in groups:
        if not same_results(rows[start : start + len(group)], group, ordered=False):
            return ()
        start += len(group)
    return tuple(map(len, groups)) if len(groups) < len(rows) else ()


def ranked_query(sql: str, width: int, aliases: bool = False) -> str | None:
    """The query with its order keys and, last, the rank of each row by them; None where that cannot be written.

    ``width``: the number of columns of its result. ``aliases``: names within an expression are aliases where they can.
    """
    try:
        (tree,) = syntax_trees(sql)
    except (sqlglot.errors.SqlglotError, RecursionError, ValueError):
        return None
    order = tree.args.get("order")
    if order is None or not isinstance(tree, exp.Query):
        return None
    names, keys, terms = [f"c{number}" for number in range(1, width + 1)], [], []
    for term in order.expressions:
        place = output_place(term.this, tree)
        if place is None:
            keys.append(resolved(term.this, tree, aliases))
            names.append(f"k{len(keys)}")
        name = names[place] if place is not None and place < width else names[-1]
        terms.append(exp.Ordered(**{**term.args, "this": exp.column(name, quoted=True)}).sql(dialect="sqlite"))
    if not keys:
        inner = next(statements(sql)).removesuffix(";")
    elif isinstance(tree, exp.Select) and not tree.args.get("distinct"):
        inner = with_columns(tree, keys)
    else:
        return None
    listed = ", ".join(f'"{name}"' for name in names)
    ranks = f"dense_rank() OVER (ORDER BY {', '.join(terms)})"
    return f'WITH "{RANKED}" ({listed}) AS (\n{inner}\n) SELECT *, {ranks} FROM "{RANKED}"'


def with_columns(tree: exp.Select, keys: list[exp.Expr]) -> str:
    """The query with further columns behind its own."""
    wider = tree.copy()
    wider.set("expressions", [*wider.expressions, *keys])
    return wider.sql(dialect="sqlite", copy=False)


def output_place(key: exp.Expr, tree: exp.Query) -> int | None:
    """Which column of the result an ORDER BY term is, from 0: a number, an alias, or the column's own expression."""
    if isinstance(key, exp.Literal):
        return int(key.this) - 1 if key.is_int else None
    listed = selected(tree)
    if any(each.is_star for each in listed):
        return None  # columns before and after a star have no known place
    alias = bare_name(key)
    for place, each in enumerate(listed):
        if alias and fold_name(each.alias) == alias:
            return place
    for place, each in enumerate(listed):
        same_name = not isinstance(tree, exp.Select) and alias and fold_name(each.alias_or_name) == alias
        if same_name or each.unalias() == key:
            return place
    return None


def resolved(key: exp.Expr, tree: exp.Query, aliases: bool) -> exp.Expr:
    """The term as a column of its own: an alias of the SELECT stands for its expression."""
    meant = {fold_name(each.alias): each.unalias() for each in selected(tree) if each.alias}

    def column(node: exp.Expr) -> exp.Expr:
        whole = node is copied
        found = meant.get(bare_name(node)) if whole or aliases else None
        return node if found is None else found.copy() if whole else exp.paren(found)

    copied = key.copy()
    return copied.transform(column, copy=False)


def selected(tree: exp.Query) -> list[exp.Expr]:
    """The columns of a SELECT, or of a compound's first one."""
    while isinstance(tree, exp.SetOperation):
        tree = tree.this.unnest()
    return tree.expressions


def bare_name(key: exp.Expr) -> str:
    """The folded name of a column without a table, else nothing."""
    return fold_name(key.name) if isinstance(key, exp.Column) and not key.table else ""
