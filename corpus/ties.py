"""Ties that ORDER BY leaves open: the same query with its ties broken one way and the other.

Every top-level ORDER BY, and every inner one with a LIMIT, gets the columns of its own result as further terms,
rising in one variant and falling in the other. Rows that tie in all columns are the same row, so the variants
agree exactly where ties do not matter. (Storing the rows in another order shows only some of these: after a
GROUP BY, ties come in the order of the groups, however the rows are stored.)
"""

from sqlglot import exp

from corpus.gold_tables import UnparsedSql, parse


def tie_variants(sql: str, width: int) -> tuple[str, str, str] | None:
    """The query as sqlglot writes it, and with ties broken by rising and by falling columns.

    ``width`` is the number of columns of its result. None where no ORDER BY can have ties that matter, or where
    sqlglot cannot parse the query. The first text lets the caller check that sqlglot kept the meaning.
    """
    try:
        tree = parse(sql)
    except UnparsedSql:
        return None
    rising, falling = (_broken(tree, width, falling) for falling in (False, True))
    if rising is None or falling is None:
        return None
    return tree.sql(dialect="sqlite"), rising, falling


def _broken(tree: exp.Expr, width: int, falling: bool) -> str | None:
    tree = tree.copy()
    found = False
    for query in list(tree.find_all(exp.Query)):
        order = query.args.get("order")
        if order is None or not (query is tree or query.args.get("limit")):
            continue
        found = True
        for column in range(1, (width if query is tree else _width(query)) + 1):
            order.append("expressions", exp.Ordered(this=exp.Literal.number(column), desc=falling))
    return tree.sql(dialect="sqlite") if found else None


def _width(query: exp.Query) -> int:
    """How many columns an inner query surely has: one, where a star hides their number."""
    return 1 if any(column.is_star for column in query.selects) else len(query.selects)
