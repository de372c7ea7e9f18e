"""Queries of other dialects in SQLite's: sqlglot's translation, with what it leaves to other engines filled in.

A translation proves nothing: whoever takes one compares the rows of both engines.
"""

from collections.abc import Callable, Iterable

import sqlglot
from sqlglot import exp

from sqale_grpo.corpus.own.tables import SourceTable
from sqale_grpo.corpus.question import CorpusError
from sqale_grpo.env.errors import first_line
from sqale_grpo.env.text import fold_name
from sqale_grpo.reward.statement import syntax_trees

SQLITE = "sqlite"
_PARTS = {
    "YEAR": "%Y",
    "MONTH": "%m",
    "DAY": "%d",
    "HOUR": "%H",
    "MINUTE": "%M",
    "SECOND": "%S",
    "DOY": "%j",
    "DOW": "%w",
    "EPOCH": "%s",
}
_STARTS = {"YEAR": "%Y-01-01", "MONTH": "%Y-%m-01", "DAY": "%Y-%m-%d", "HOUR": "%Y-%m-%d %H:00:00"}
_PART_CLASSES: dict[type[exp.Expr], str] = {
    exp.Year: "YEAR",
    exp.Month: "MONTH",
    exp.Day: "DAY",
    exp.Hour: "HOUR",
    exp.Minute: "MINUTE",
}


class CannotTranslate(Exception):
    """The query has no translation; the message says why in a few words."""


def check_dialect(name: str) -> str:
    """The dialect's name as sqlglot has it. Raises CorpusError for one that it does not know."""
    known = {each.value for each in sqlglot.Dialects if each.value}
    lower = {"postgresql": "postgres", "mariadb": "mysql"}.get(name.lower(), name.lower())
    if lower not in known:
        raise CorpusError(f"there is no SQL dialect {name!r}: choose one of {', '.join(sorted(known))}")
    return lower


def to_sqlite(sql: str, dialect: str, tables: Iterable[SourceTable] = ()) -> str:
    """One query in SQLite's dialect, its tables called as in the new database. Raises CannotTranslate."""
    try:
        trees = syntax_trees(sql, dialect)
    except (sqlglot.errors.SqlglotError, RecursionError) as error:
        raise CannotTranslate(f"it is no {dialect} that sqlglot can read: {first_line(error)}") from error
    if len(trees) != 1 or not isinstance(trees[0], exp.Query):
        raise CannotTranslate("it is not one query")
    tree: exp.Expr = trees[0]
    _rename(tree, tables)
    for change in _CHANGES:
        tree = tree.transform(change)
    try:
        return tree.sql(dialect=SQLITE, unsupported_level=sqlglot.ErrorLevel.RAISE)
    except (sqlglot.errors.SqlglotError, RecursionError, ValueError) as error:
        raise CannotTranslate(f"SQLite has nothing for it: {first_line(error)}") from error


def _rename(tree: exp.Expr, tables: Iterable[SourceTable]) -> None:
    """Tables without schema and database; one that is called otherwise here gets its name, under its old one."""
    places = {(fold_name(t.place[0]), fold_name(t.place[1])): t.name for t in tables if t.place}
    for node in tree.find_all(exp.Table):
        if not isinstance(node.this, exp.Identifier) or not node.db:
            continue
        name = places.get((fold_name(node.db), fold_name(node.name)), node.name)
        if name != node.name and not node.alias:
            node.set("alias", exp.TableAlias(this=exp.to_identifier(node.name, quoted=True)))
        node.set("this", exp.to_identifier(name, quoted=True))
        node.set("db", None)
        node.set("catalog", None)
    for column in tree.find_all(exp.Column):
        if column.args.get("db"):
            column.set("db", None)
            column.set("catalog", None)


def _said(node: exp.Expr | None) -> str:
    """A part of a date by its name; Postgres writes 'month'::text where it shows a view."""
    while isinstance(node, exp.Cast | exp.Paren):
        node = node.this
    return node.name.upper() if node is not None else ""


def _moment(node: exp.Expr) -> exp.Expr:
    """A cast to a moment with a zone: moments are in UTC here."""
    if isinstance(node, exp.Cast) and node.to.is_type("timestamptz"):
        return exp.Anonymous(this="DATETIME", expressions=[node.this])
    return node


def _part(node: exp.Expr) -> exp.Expr:
    """EXTRACT(YEAR FROM d), YEAR(d) and their like: a whole number of strftime."""
    if isinstance(node, exp.Extract):
        part, value = _said(node.this), node.expression
    elif type(node) in _PART_CLASSES:
        part, value = _PART_CLASSES[type(node)], node.this
    else:
        return node
    if (
        isinstance(value, exp.TsOrDsToDate | exp.Cast)
        and type(node) in _PART_CLASSES
        and part not in ("HOUR", "MINUTE")
    ):
        value = value.this
    if part == "QUARTER":
        month = _strftime("%m", value)
        return exp.Paren(
            this=exp.Div(
                this=exp.Paren(this=exp.Add(this=month, expression=_number(2))), expression=_number(3), typed=True
            )
        )
    if part not in _PARTS:
        return node
    return _strftime(_PARTS[part], value)


def _start(node: exp.Expr) -> exp.Expr:
    """DATE_TRUNC('month', d): the day that the month begins with."""
    if not isinstance(node, exp.TimestampTrunc | exp.DateTrunc):
        return node
    unit = _said(node.args.get("unit"))
    if unit not in _STARTS:
        return node
    shown = _STARTS[unit]
    if isinstance(node, exp.TimestampTrunc) and len(shown) <= len("%Y-%m-%d"):
        shown += " 00:00:00"  # Postgres gives a moment, whatever it gets
    return exp.Anonymous(this="STRFTIME", expressions=[exp.Literal.string(shown), node.this])


def _ends(node: exp.Expr) -> exp.Expr:
    """LEFT(a, 3) and RIGHT(a, 3)."""
    if isinstance(node, exp.Left):
        return exp.Substring(this=node.this, start=_number(1), length=node.expression)
    if isinstance(node, exp.Right):
        return exp.Substring(this=node.this, start=exp.Neg(this=node.expression))
    return node


def _later(node: exp.Expr) -> exp.Expr:
    """d + INTERVAL '1 month'."""
    if not isinstance(node, exp.Add | exp.Sub) or not isinstance(node.expression, exp.Interval):
        return node
    interval = node.expression
    amount, unit = interval.this, interval.text("unit").lower().removesuffix("s")
    if not isinstance(amount, exp.Literal) or unit not in ("year", "month", "day", "hour", "minute", "second"):
        return node
    sign = "-" if isinstance(node, exp.Sub) else "+"
    function = "DATE" if _is_day(node.this) and unit in ("year", "month", "day") else "DATETIME"
    return exp.Anonymous(this=function, expressions=[node.this, exp.Literal.string(f"{sign}{amount.name} {unit}")])


def _is_day(node: exp.Expr) -> bool:
    cast_to_date = isinstance(node, exp.Cast) and node.to.is_type("date")
    return cast_to_date or isinstance(node, exp.CurrentDate | exp.Date | exp.TsOrDsToDate)


def _strftime(shown: str, value: exp.Expr) -> exp.Expr:
    text = exp.Anonymous(this="STRFTIME", expressions=[exp.Literal.string(shown), value])
    return exp.Cast(this=text, to=exp.DataType.build("INTEGER"))


def _number(value: int) -> exp.Expr:
    return exp.Literal.number(value)


def _count(node: exp.Expr) -> exp.Expr:
    """DuckDB's count_star()."""
    named = isinstance(node, exp.Anonymous) and node.name.lower() == "count_star"
    return exp.Count(this=exp.Star()) if named else node


_CHANGES: tuple[Callable[[exp.Expr], exp.Expr], ...] = (_part, _start, _moment, _ends, _later, _count)
