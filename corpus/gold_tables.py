"""Which base tables a gold query reads, by sqlglot; the caller falls back to SQLite's authorizer."""

import string
from collections.abc import Iterable, Iterator
from functools import lru_cache

import sqlglot
from sqlglot import exp

_LOWER = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)


class UnparsedSql(Exception):
    """sqlglot cannot read the query."""


def gold_tables(sql: str, tables: Iterable[str]) -> tuple[str, ...]:
    """The members of ``tables`` that ``sql`` reads, in the order of ``tables``.

    ``tables`` are the base tables of the database, as declared; names are matched as SQLite matches them
    (ASCII case-insensitive). Aliases, names of common table expressions and table-valued functions do not
    count. Raises UnparsedSql where sqlglot, in its SQLite dialect, cannot parse the query.
    """
    named = {fold(name) for name in _table_names(parse(sql))}
    return tuple(table for table in tables if fold(table) in named)


@lru_cache(maxsize=4)  # each gold is looked at from several sides in a row
def parse(sql: str) -> exp.Expr:
    """The syntax tree of one query, shared: copy it before a change. Raises UnparsedSql."""
    try:
        statements = [tree for tree in sqlglot.parse(sql, dialect="sqlite") if tree is not None]
    except (sqlglot.errors.SqlglotError, RecursionError) as error:
        raise UnparsedSql(str(error).split("\n")[0]) from error
    if len(statements) != 1 or not isinstance(statements[0], exp.Query):
        raise UnparsedSql("not one query")
    return statements[0]


def is_ordered(sql: str) -> bool:
    """Whether the query has a top-level ORDER BY, so that its rows are a sequence and not a multiset."""
    try:
        tree = parse(sql)
    except UnparsedSql:
        return "order by" in " ".join(sql.lower().rpartition(")")[2].split())
    return tree.args.get("order") is not None


def fold(name: str) -> str:
    """A name in the form in which SQLite compares names: ASCII letters lowered, others kept."""
    return name.translate(_LOWER)


def _table_names(tree: exp.Expr) -> Iterator[str]:
    for node in tree.find_all(exp.Table):
        if isinstance(node.this, exp.Identifier) and (node.db or not _is_common_table(node)):
            yield node.name


def _is_common_table(table: exp.Table) -> bool:
    """Whether a WITH clause around the table defines its name (an inner WITH does not reach out)."""
    name = fold(table.name)
    node = table.parent
    while node is not None:
        if any(fold(cte.alias) == name for cte in getattr(node, "ctes", ())):
            return True
        node = node.parent
    return False
