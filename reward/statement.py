"""What a query's text says about its joins: sources and equalities of every SELECT, read with sqlglot, no schema.

Parsing is the slow part (0.2 to 0.5 ms a query), so its outcome is kept by text: the candidates of a group often
write the same query.

Does a query fix the order of its rows? Only a top-level ORDER BY does.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache

import sqlglot
from sqlglot import exp
from sqlglot.dialects.sqlite import SQLite
from sqlglot.parsers.sqlite import SQLiteParser
from sqlglot.tokens import TokenType

from sqale_grpo.env.text import fold_name
from sqale_grpo.reward.unread import Reads

# 100,000 characters take about 0.2 s; what a policy writes in one answer is a tenth of that.
CHARS = 100_000
# Steps of the parser, about 5 µs each; a real query takes up to 3 a token. It tries some functions in two ways, so
# `date(date(date(…` doubles the steps with every level.
STEPS, STEPS_A_TOKEN = 20_000, 8
FROM_ENTRY = (exp.Subquery, exp.Table)
ColumnName = tuple[str, str]  # qualifier ("" where there is none) and name, both folded


@dataclass(frozen=True, slots=True)
class FromItem:
    """An entry of a FROM clause: the name it goes by, and its table; "" for a derived table, CTE or function."""

    alias: str
    table: str


@dataclass(frozen=True, slots=True)
class Shared:
    """A USING or NATURAL join: sources before ``start`` with those from ``start`` to ``end``.

    ``columns`` None: all that both sides have (NATURAL).
    """

    start: int
    end: int
    columns: tuple[str, ...] | None


@dataclass(slots=True)
class FromClause:
    """The sources of one SELECT in order, and the equalities of bare columns that hold between them.

    ``common``: the names that are common table expressions there.
    """

    common: frozenset[str]
    sources: list[FromItem] = field(default_factory=list)
    equalities: list[tuple[ColumnName, ColumnName]] = field(default_factory=list)
    shared: list[Shared] = field(default_factory=list)


def syntax_trees(sql: str, dialect: str = "sqlite") -> list[exp.Expr]:
    """One tree per statement of a text; a semicolon with nothing but a comment after it is no statement.

    Raises what sqlglot raises: SqlglotError, RecursionError, ValueError.
    """
    trees = sqlglot.parse(sql, dialect=dialect)
    return [tree for tree in trees if tree is not None and not isinstance(tree, exp.Semicolon)]


class TooManySteps(Exception):
    """A text that would keep the parser busy."""


class BoundedParser(SQLiteParser):
    """sqlglot's parser with an end. Its one way through the tokens, forth and back, is ``_advance``."""

    # sqlglot drops a plus sign, but with one an expression is no bare column.
    UNARY_PARSERS = {
        **SQLiteParser.UNARY_PARSERS,
        TokenType.PLUS: lambda self: self.expression(exp.Neg(this=self._parse_unary())),
    }

    def read(self, sql: str) -> list[exp.Expr | None]:
        """The trees of the statements. Raises TooManySteps, and what sqlglot raises."""
        tokens = self.dialect.tokenize(sql)
        self.steps = STEPS + STEPS_A_TOKEN * len(tokens)
        return self.parse(tokens, sql)

    def _advance(self, times: int = 1) -> None:
        self.steps -= 1
        if self.steps < 0:
            raise TooManySteps
        super()._advance(times)


@lru_cache(maxsize=2_048)
def from_clauses(sql: str) -> tuple[FromClause, ...] | None:
    """Every FROM clause with a join, of sub-queries, CTEs and compound parts too. None: sqlglot cannot read the text.

    The parts are shared between callers: do not change them.
    """
    if len(sql) > CHARS:
        return None
    try:
        trees = [tree for tree in BoundedParser(dialect=SQLite()).read(sql) if tree is not None]
        return tuple(clause for tree in trees for clause in clauses(tree) if len(clause.sources) > 1)
    except Exception:  # a third-party parser on text that a policy wrote: no failure of its own may stop training
        return None


def clauses(tree: exp.Expr) -> Iterator[FromClause]:
    """The FROM clauses of a tree; a join in parentheses that has an alias is a SELECT of its own.

    Left out: common table expressions that the result does not depend on, since nothing reads them.
    """
    scopes: dict[int, frozenset[str]] = {}
    reads = Reads(tree)
    for node in tree.find_all(exp.Select, exp.Subquery):
        if not reads.depends_on(node):
            continue
        clause = FromClause(common_tables(node, scopes))
        if isinstance(node, exp.Subquery):
            if node.alias and holds_join(node.this):
                add_source(clause, node.this)
        elif node.args.get("from_"):
            add_source(clause, node.args["from_"].this)
            add_joins(clause, node)
            where = node.args.get("where")
            clause.equalities += equalities(where.this) if where else ()
        yield clause


def common_tables(node: exp.Expr | None, scopes: dict[int, frozenset[str]]) -> frozenset[str]:
    """Folded names that the WITH clauses around a node define; ``scopes`` keeps them for its parents too."""
    path = []
    while node is not None and id(node) not in scopes:
        path.append(node)
        node = node.parent
    names = scopes[id(node)] if node is not None else frozenset()
    for inner in reversed(path):
        with_ = inner.args.get("with_")
        if with_:
            names |= {fold_name(common.alias) for common in with_.expressions}
        scopes[id(inner)] = names
    return names


def add_source(clause: FromClause, node: exp.Expr, alias: str = "") -> None:
    """Append a FROM entry, in parentheses or not; without an alias, joined entries in parentheses one by one."""
    alias = alias or node.alias
    inner = node.this
    if isinstance(node, exp.Subquery) and isinstance(inner, FROM_ENTRY) and not (alias and holds_join(inner)):
        add_source(clause, inner, alias)
    elif isinstance(node, exp.Table) and isinstance(inner, exp.Identifier):
        common = not node.db and fold_name(node.name) in clause.common
        clause.sources.append(FromItem(fold_name(alias or node.name), "" if common else node.name))
    else:
        clause.sources.append(FromItem(fold_name(alias), ""))
    add_joins(clause, node)


def holds_join(node: exp.Expr) -> bool:
    """Is this FROM entry, parentheses opened, a join?"""
    while isinstance(node, FROM_ENTRY):
        if node.args.get("joins"):
            return True
        node = node.this
    return False


def add_joins(clause: FromClause, node: exp.Expr) -> None:
    """Append the entries that are joined to ``node``, with their conditions."""
    for join in node.args.get("joins") or ():
        start = len(clause.sources)
        add_source(clause, join.this)
        end = len(clause.sources)
        using = join.args.get("using")
        if using:
            clause.shared.append(Shared(start, end, tuple(fold_name(column.name) for column in using)))
        elif join.method == "NATURAL":
            clause.shared.append(Shared(start, end, None))
        elif join.args.get("on"):
            clause.equalities += equalities(join.args["on"])


def equalities(condition: exp.Expr) -> Iterator[tuple[ColumnName, ColumnName]]:
    """The top-level AND conjuncts of the form ``column = column``."""
    todo = [condition]
    while todo:
        node = todo.pop().unnest()
        if isinstance(node, exp.And):
            todo += [node.this, node.expression]
        elif isinstance(node, exp.EQ):
            left, right = node.this.unnest(), node.expression.unnest()
            if isinstance(left, exp.Column) and isinstance(right, exp.Column):
                yield (fold_name(left.table), fold_name(left.name)), (fold_name(right.table), fold_name(right.name))
