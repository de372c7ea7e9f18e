"""Views of other databases in the new one: translated, made, and kept where both engines give the same rows."""

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from sqlglot import exp, parse_one
from sqlglot.errors import SqlglotError

from sqale_grpo.corpus.own.compare import MOST_ROWS, different_rows
from sqale_grpo.corpus.own.tables import DatabaseSource, SourceTable, View
from sqale_grpo.corpus.own.transpile import CannotTranslate, to_sqlite
from sqale_grpo.env.text import quote_name


def make_views(source: DatabaseSource, tables: Sequence[SourceTable], cut: frozenset[str], out: Path) -> list[str]:
    """Make the views that can be made in the new file ``out``; returns a line on each that is left out or unproven."""
    notes, waiting = [], list(source.views())
    with closing(sqlite3.connect(out, isolation_level=None)) as target:
        while waiting:
            refused: list[tuple[View, str]] = []
            for view in waiting:
                reason = _make(source, view, tables, bool(cut), target)
                if reason:
                    refused.append((view, reason))
            if len(refused) == len(waiting):  # a view may read one that comes later: again, while that helps
                notes += [f"the view {view.name} is left out: {reason}" for view, reason in refused]
                break
            waiting = [view for view, _ in refused]
    if cut and source.views():
        notes.append("the rows of the views are not compared with the source's, since --rows cuts tables")
    return notes


def _make(
    source: DatabaseSource, view: View, tables: Sequence[SourceTable], cut: bool, target: sqlite3.Connection
) -> str:
    """Why the view cannot be made, or nothing."""
    try:
        query = _query(view.sql, source.dialect)
        sql = to_sqlite(query, source.dialect, tables)
    except CannotTranslate as error:
        return str(error)
    name = quote_name(view.name)
    try:
        target.execute(f"CREATE VIEW {name} AS {sql}")
        rows = target.execute(f"SELECT * FROM {name}").fetchmany(MOST_ROWS + 1)
    except sqlite3.Error as error:
        target.execute(f"DROP VIEW IF EXISTS {name}")
        return str(error)
    reason = "" if cut else different_rows(source, query, rows, ordered=False)
    if reason:
        target.execute(f"DROP VIEW {name}")
    return reason


def _query(sql: str, dialect: str) -> str:
    """The query of a definition, which may come with its CREATE VIEW."""
    try:
        tree = parse_one(sql.strip().rstrip(";"), dialect=dialect)
    except (SqlglotError, RecursionError) as error:
        raise CannotTranslate(f"it is no {dialect} that sqlglot can read") from error
    return tree.expression.sql(dialect=dialect) if isinstance(tree, exp.Create) else sql
