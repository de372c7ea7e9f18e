"""Ties that ORDER BY leaves open: the same query with its ties broken one way and the other.

Every top-level ORDER BY, and every inner one with a LIMIT, gets the columns of its own result as further terms,
rising in one variant and falling in the other. Rows that tie in all columns are the same row, so the variants
agree exactly where ties do not matter. (Storing the rows in another order shows only some of these: after a
GROUP BY, ties come in the order of the groups, however the rows are stored.)
"""

from sqlglot import exp

from corpus.gold_tables import UnparsedSql, parse


def tie_variants(sql: str, width: int) -> tuple[str, str] | None:
    """The query with ties broken by rising and by falling columns; ``width``: how many columns its result has.

    None where no ORDER BY can have ties that matter, or where sqlglot cannot parse the query.
    """
    try:
        tree = parse(sql).copy()
    except UnparsedSql:
        return None
    added = []
    for query in tree.find_all(exp.Query):
        order = query.args.get("order")
        if order is not None and (query is tree or query.args.get("limit")):
            columns = width if query is tree else _width(query)
            terms = [exp.Ordered(this=exp.Literal.number(column), desc=False) for column in range(1, columns + 1)]
            order.set("expressions", [*order.expressions, *terms])
            added += terms
    if not added:
        return None
    rising = tree.sql(dialect="sqlite", copy=False)
    for term in added:
        term.set("desc", True)
    return rising, tree.sql(dialect="sqlite", copy=False)


def rewritten(sql: str) -> str:
    """The query as sqlglot writes it, unchanged: whoever compares variants checks that this one means the same."""
    return parse(sql).sql(dialect="sqlite")


def _width(query: exp.Query) -> int:
    """How many columns an inner query surely has: one, where a star hides their number."""
    return 1 if any(column.is_star for column in query.selects) else len(query.selects)
