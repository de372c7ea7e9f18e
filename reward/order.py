"""Does a query fix the order of its rows? Only a top-level ORDER BY does."""

from functools import lru_cache

from env.syntax import tokens


@lru_cache(maxsize=1_024)
def is_ordered(sql: str) -> bool:
    """Whether a statement that SQLite accepts has an ORDER BY outside all parentheses.

    Inside parentheses it belongs to a sub-query, a CTE, a window or an aggregate. ORDER is a reserved word: outside
    quotes it can be nothing else.
    """
    depth, previous = 0, ""
    for token in tokens(sql):
        if token in ("(", ")"):
            depth += 1 if token == "(" else -1
        if depth == 0 and previous == "order" and token == "by":
            return True
        previous = token
    return False
