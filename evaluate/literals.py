"""String literals of the gold query: which a question states, which a tool result showed, which an answer uses.

What counts as a literal and as found is our assumption. Text in single quotes counts, each literal once, except for the
arguments of SQLite's date functions (formats and modifiers are no values) and for blank text; of a LIKE or GLOB pattern
the part between its wildcards. Text in double quotes counts as a name. A literal is found where it stands as a whole:
no letter or digit next to it. A question states it in any case, a tool result must hold it letter for letter.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

import sqlglot
from sqlglot.tokens import Token, TokenType

DATE_FUNCTIONS = {"strftime", "date", "time", "datetime", "julianday", "unixepoch", "timediff"}
WILDCARDS = {TokenType.LIKE: "%_", TokenType.GLOB: "*?"}


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


def count_literals(gold_sql: str, question: str, results: Iterable[str], answer: str | None) -> LiteralCounts:
    """Counts over the gold query's literals; ``question`` is all that the policy is told, ``results`` tool results."""
    shown = "\n".join(results)
    told = question.lower()
    literals = string_literals(gold_sql)
    unstated = [x for x in literals if not appears(x.lower(), told)]
    seen = [x for x in literals if appears(x, shown)]
    held = literals_of_answer(answer or "")
    used = [x for x in seen if x in held]
    count = {"seen": len(seen), "unstated_seen": len([x for x in unstated if x in seen])}
    return LiteralCounts(
        literals=len(literals),
        literals_seen=count["seen"],
        stated=len(literals) - len(unstated),
        stated_seen=count["seen"] - count["unstated_seen"],
        unstated=len(unstated),
        unstated_seen=count["unstated_seen"],
        literals_used=len(used),
        unstated_used=len([x for x in unstated if x in used]),
    )


def string_literals(sql: str) -> list[str]:
    """The distinct string literals of a query (SQLite dialect), in order; empty where it cannot be read."""
    return list(dict.fromkeys(text for token, text in _texts(sql) if token.token_type is TokenType.STRING))


def literals_of_answer(sql: str) -> set[str]:
    """What an answer may hold as text: string literals, and what stands in double quotes, which SQLite takes for text
    where no such name exists."""
    quoted = {token.text for token in _tokens(sql) if token.token_type is TokenType.IDENTIFIER}
    return {text for _, text in _texts(sql)} | quoted


def appears(literal: str, text: str) -> bool:
    """Whether ``text`` holds ``literal`` as a whole, with no letter or digit next to it."""
    return re.search(rf"(?<!\w){re.escape(literal)}(?!\w)", text) is not None


def _tokens(sql: str) -> list[Token]:
    try:
        return sqlglot.tokenize(sql, read="sqlite")
    except sqlglot.errors.TokenError:
        return []


def _texts(sql: str) -> Iterable[tuple[Token, str]]:
    """String tokens that are values, with their text; of a pattern what stands between its wildcards."""
    tokens = _tokens(sql)
    inside: list[bool] = []  # for every open parenthesis: does it hold arguments of a date function?
    for before, token in zip([None, *tokens], tokens, strict=False):
        if token.token_type is TokenType.L_PAREN:
            inside.append(before is not None and before.text.lower() in DATE_FUNCTIONS)
        elif token.token_type is TokenType.R_PAREN and inside:
            inside.pop()
        elif token.token_type is TokenType.STRING and not any(inside):
            text = token.text.strip(WILDCARDS.get(before.token_type, "") if before else "")
            if text.strip():
                yield token, text
