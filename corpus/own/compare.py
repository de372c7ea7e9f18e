"""Whether the source's engine and SQLite return the same rows."""

from collections.abc import Sequence

from sqale_grpo.corpus.own.tables import DatabaseSource, QueryFailed, Row
from sqale_grpo.reward.compare import same_results

MOST_ROWS = 10_000  # what a question's result may have


def different_rows(source: DatabaseSource, sql: str, rows: Sequence[Row], ordered: bool) -> str:
    """How the rows of SQLite differ from those of ``sql`` in the source; empty where they are the same."""
    try:
        theirs = source.query(sql, MOST_ROWS)
    except QueryFailed as error:
        return f"{source.dialect} does not run it: {error}"
    if len(theirs) > MOST_ROWS:
        return f"it returns more than {MOST_ROWS:,} rows, which are not compared"
    widths = {len(row) for row in (*rows, *theirs)}
    if len(widths) <= 1 and same_results(rows, theirs, ordered):
        return ""
    if len(rows) != len(theirs):
        return f"{source.dialect} returns {len(theirs):,} rows and SQLite {len(rows):,}"
    return f"{source.dialect} and SQLite return other rows"
