"""String literals of the gold query: which a question states, which a tool's cell showed, which an answer uses.

What counts as a literal and as found is our assumption (docs/evaluate.md). A literal is a value that the query compares
with a column: outputs of CASE, separators, searched signs, formats and modifiers of date functions are none; of a LIKE
or GLOB pattern each part between wildcards is one; text in double quotes that names nothing is one, as SQLite takes it.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import sqlglot
from sqlglot import exp
from sqlglot.tokens import TokenType

from sqale_grpo.env.text import fold_name

COMPARISONS = (
    exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.Is, exp.NullSafeEQ, exp.NullSafeNEQ,
    exp.In, exp.Between, exp.Like, exp.Glob,
)  # fmt: skip
# What may stand between a literal and its comparison and leave it the value that is compared.
AROUND = (exp.Paren, exp.Cast, exp.Collate, exp.Lower, exp.Upper, exp.Trim, exp.Tuple, exp.Values)
# Functions whose first argument is a moment (strftime's second; sqlglot tells it from the format).
MOMENTS = (exp.Date, exp.TimeToStr, exp.TsOrDsToTimestamp, exp.TsOrDsToDate)
MOMENT_NAMES = {"date", "time", "datetime", "julianday", "unixepoch"}
NOW = "now"
WILDCARDS: dict[type[exp.Expr], re.Pattern[str]] = {
    exp.Like: re.compile(r"%+_*|_*%+|^_+|_+$|_{2,}"),
    exp.Glob: re.compile(r"[*?]+|\[[^\]]*\]"),
}
AWAY = str.maketrans("%_", "\ue000\ue001")
BACK = str.maketrans("\ue000\ue001", "%_")
TABLES = ("run_query", "sample_rows", "distinct_values")  # their results are a heading and cells

# Columns of a table by its name, or None where there is no such table.
Columns = Callable[[str], Collection[str] | None]
Call = tuple[str, Mapping[str, object], str]  # tool, arguments, result


def no_columns(table: str) -> None:
    """A schema of which nothing is known: text in double quotes is a name."""


@dataclass(frozen=True)
class Literal:
    """A value of a query. ``open_left``, ``open_right``: a wildcard stands there, so a word may go on.

    ``any_case``: it is compared without regard to case.
    """

    text: str
    open_left: bool = False
    open_right: bool = False
    any_case: bool = False

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        left, right = "" if self.open_left else r"(?<!\w)", "" if self.open_right else r"(?!\w)"
        return re.compile(left + re.escape(self.text) + right, re.IGNORECASE if self.any_case else 0)

    def appears(self, text: str) -> bool:
        """Whether ``text`` holds it as a whole: no letter or digit next to it, except where a wildcard stands."""
        return self._pattern.search(text) is not None


@dataclass(frozen=True)
class LiteralCounts:
    """The record's columns about literals: counts of one episode.

    Published: the share of literals that a tool result showed before submission; ``unstated``: of those that the
    question does not state. ``used`` counts literals that were shown and stand in the answer too (our reading of "uses
    the correct value").
    """

    literals: int
    literals_seen: int
    stated: int
    stated_seen: int
    unstated: int
    unstated_seen: int
    literals_used: int
    unstated_used: int


def count_literals(
    gold_sql: str, question: str, calls: Iterable[Call], answer: str | None, columns: Columns = no_columns
) -> LiteralCounts:
    """Counts over the gold query's literals; ``question`` is all that the policy is told, ``calls`` what it was shown.

    ``columns`` tells a name in double quotes from a text.
    """
    literals = string_literals(gold_sql, columns)
    told = question.lower()
    shown = [(text, echoes(sql, columns) if sql else ()) for text, sql in map(shown_by, calls)]
    unstated = [each for each in literals if not replace(each, text=each.text.lower()).appears(told)]
    seen = [each for each in literals if any(shows(each, text, own) for text, own in shown)]
    held = literals_of_answer(answer or "")
    lower = {text.lower() for text in held}
    used = [each for each in seen if each.text in held or (each.any_case and each.text.lower() in lower)]
    count = {"seen": len(seen), "unstated_seen": len([each for each in unstated if each in seen])}
    return LiteralCounts(
        literals=len(literals),
        literals_seen=count["seen"],
        stated=len(literals) - len(unstated),
        stated_seen=count["seen"] - count["unstated_seen"],
        unstated=len(unstated),
        unstated_seen=count["unstated_seen"],
        literals_used=len(used),
        unstated_used=len([each for each in unstated if each in used]),
    )


def shown_by(call: Call) -> tuple[str, str]:
    """What a call's result shows of the database, and the query that was run for it, if the policy wrote it.

    The heading of a table is left out: it repeats the policy's own expressions.
    """
    tool, arguments, result = call
    text = result.partition("\n")[2] if tool in TABLES else result
    return text, str(arguments.get("sql", "")) if tool == "run_query" else ""


def shows(literal: Literal, text: str, own: Collection[str]) -> bool:
    """Whether cells hold the literal; ``own``: texts that the policy's query put into its result itself."""
    return literal.appears(text) and not any(literal.appears(each) for each in own)


def string_literals(sql: str, columns: Columns = no_columns) -> list[Literal]:
    """The distinct values of a query (SQLite dialect), in order; empty where it cannot be read."""
    tree = parsed(sql)
    if tree is None:
        return []
    found = {literal: None for node in texts(tree, sql, columns) for literal in values_of(node)}
    return list(found)


def echoes(sql: str, columns: Columns = no_columns) -> list[str]:
    """Texts of a query that it compares with nothing: its result may show them, whatever the data holds."""
    tree = parsed(sql)
    if tree is None:
        return list(literals_of_answer(sql))
    return [text_of(node) for node in texts(tree, sql, columns) if compared_in(node) is None]


def literals_of_answer(sql: str) -> set[str]:
    """What an answer may hold as text: string literals, parts of patterns, and what stands in double quotes."""
    try:
        tokens = sqlglot.tokenize(sql, read="sqlite")
    except sqlglot.errors.TokenError:
        return set()
    texts = {token.text for token in tokens if token.token_type in (TokenType.STRING, TokenType.IDENTIFIER)}
    parts = {part for text in texts for split in WILDCARDS.values() for part in split.split(text) if part}
    return texts | parts


def parsed(sql: str) -> exp.Expr | None:
    """The query's tree, None where sqlglot cannot read it."""
    try:
        return sqlglot.parse_one(sql, read="sqlite")
    except (sqlglot.errors.SqlglotError, RecursionError):
        return None


def texts(tree: exp.Expr, sql: str, columns: Columns) -> Iterator[exp.Expr]:
    """Nodes of the query's texts, in its order: literals, and names in double quotes that name nothing."""
    quoted = in_double_quotes(sql)
    names = known_names(tree, columns) if quoted else None
    for node in tree.dfs():
        if isinstance(node, exp.Literal) and node.is_string:
            yield node
        elif (
            isinstance(node, exp.Column) and names is not None and not node.table and node.name in quoted
            and node.this.args.get("quoted") and fold_name(node.name) not in names
        ):  # fmt: skip
            yield node


def in_double_quotes(sql: str) -> set[str]:
    """What stands in double quotes; in brackets or backticks it is always a name."""
    tokens = sqlglot.tokenize(sql, read="sqlite")
    return {
        token.text
        for token in tokens
        if token.token_type is TokenType.IDENTIFIER and sql[token.start : token.start + 1] == '"'
    }


def known_names(tree: exp.Expr, columns: Columns) -> set[str] | None:
    """Names that a column of the query may have, folded; None where a table's columns are not known."""
    own = {fold_name(each.alias) for each in tree.find_all(exp.CTE)}
    names = {fold_name(each.alias) for each in tree.find_all(exp.Alias)}
    for alias in tree.find_all(exp.TableAlias):
        names |= {fold_name(column.name) for column in alias.args.get("columns") or ()}
    for table in tree.find_all(exp.Table):
        if fold_name(table.name) in own:
            continue
        known = columns(table.name)
        if known is None:
            return None
        names |= set(map(fold_name, known))
    return names


def text_of(node: exp.Expr) -> str:
    """The text that a node of ``texts`` stands for."""
    return node.name


def compared_in(node: exp.Expr) -> exp.Expr | None:
    """The comparison with a column in which a text is the value; None where it is something else.

    For ``CASE x WHEN 'a'`` it is the CASE.
    """
    below, above = node, node.parent
    while above is not None and (isinstance(above, AROUND) or is_moment(below, above)):
        below, above = above, above.parent
    if isinstance(above, exp.If) and below is above.this and isinstance(above.parent, exp.Case):
        case = above.parent
        return case if case.this is not None and case.this.find(exp.Column) else None
    if not isinstance(above, COMPARISONS):
        return None
    others = [each for each in above.iter_expressions() if each is not below]
    # Of an IN list and a BETWEEN the other values are no columns: the tested expression is.
    return above if any(each.find(exp.Column) is not None for each in others) else None


def is_moment(node: exp.Expr, above: exp.Expr) -> bool:
    """Is ``node`` the moment that a date function is given, and not its format or a modifier?"""
    if isinstance(above, MOMENTS):
        return node is above.this
    if isinstance(above, exp.Anonymous) and above.name.lower() in MOMENT_NAMES:
        return bool(above.expressions) and node is above.expressions[0]
    return False


def values_of(node: exp.Expr) -> Iterator[Literal]:
    """The values that a text of the query is: itself, the parts of a pattern, or nothing."""
    comparison, text = compared_in(node), text_of(node)
    if comparison is None or (text.lower() == NOW and node.parent is not None and is_moment(node, node.parent)):
        return
    any_case = isinstance(comparison, exp.Like) or folds_case(comparison)
    wildcards = WILDCARDS.get(type(comparison))
    if wildcards is None:
        if text.strip():
            yield Literal(text, any_case=any_case)
        return
    pieces = [piece.translate(BACK) for piece in wildcards.split(unescaped(text, comparison))]
    for place, piece in enumerate(pieces):
        if re.search(r"\w", piece):  # a sign alone, such as ':', is searched for and looked up nowhere
            yield Literal(piece, place > 0, place < len(pieces) - 1, any_case)


def unescaped(pattern: str, comparison: exp.Expr) -> str:
    """A LIKE pattern without its escape character; wildcards that this takes for signs stand in as others (BACK)."""
    escape = comparison.parent
    if not isinstance(escape, exp.Escape):
        return pattern
    character = re.escape(escape.expression.name)
    return re.sub(f"{character}(.)", lambda match: match[1].translate(AWAY), pattern, flags=re.DOTALL)


def folds_case(comparison: exp.Expr) -> bool:
    """Is it made without regard to case, by LOWER, UPPER or NOCASE?"""
    if any(each.name.lower() == "nocase" for each in comparison.find_all(exp.Var)):
        return True
    return comparison.find(exp.Lower, exp.Upper) is not None
