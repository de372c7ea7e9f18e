"""Which base tables a gold query reads, by sqlglot; the caller falls back to SQLite's authorizer."""

from collections.abc import Iterable, Iterator
from functools import lru_cache

import sqlglot
from sqlglot import exp

from sqale_grpo.env.text import fold_name
from sqale_grpo.reward.statement import syntax_trees


class UnparsedSql(Exception):
    """sqlglot cannot read the query."""


def gold_tables(sql: str, tables: Iterable[str]) -> tuple[str, ...]:
    """The members of ``tables`` that ``sql`` reads, in the order of ``tables``.

    ``tables`` are the base tables of the database, as declared; names are matched as SQLite matches them
    (ASCII case-insensitive). Aliases, names of common table expressions and table-valued functions do not
    count. Raises UnparsedSql where sqlglot, in its SQLite dialect, cannot parse the query.
    """
    named = {fold_name(name) for name in _table_names(parse(sql))}
    return tuple(table for table in tables if fold_name(table) in named)


@lru_cache(maxsize=4)  # each gold is looked at from several sides in a row
def parse(sql: str) -> exp.Expr:
    """The syntax tree of one query, shared: copy it before a change. Raises UnparsedSql."""
    try:
        statements = syntax_trees(sql)
    except (sqlglot.errors.SqlglotError, RecursionError) as error:
        raise UnparsedSql(str(error).split("\n")[0]) from error
    if len(statements) != 1 or not isinstance(statements[0], exp.Query):
        raise UnparsedSql("not one query")
    return statements[0]


def _table_names(tree: exp.Expr) -> Iterator[str]:
    for node in tree.find_all(exp.Table):
        if isinstance(node.this, exp.Identifier) and (node.db or not _is_common_table(node)):
            yield node.name


def _is_common_table(table: exp.Table) -> bool:
    """Whether a WITH clause around the table defines its name (an inner WITH does not reach out)."""
    name = fold_name(table.name)
    node = table.parent
    while node is not None:
        if any(fold_name(cte.alias) == name for cte in getattr(node, "ctes", ())):
            return True
        node = node.parent
    return False
