"""Questions into the corpus: their SQL in SQLite's dialect, taken where both engines return the same rows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from sqale_grpo.corpus.own.compare import MOST_ROWS, different_rows
from sqale_grpo.corpus.own.question_files import AskedQuestion
from sqale_grpo.corpus.own.tables import DatabaseSource, SourceTable
from sqale_grpo.corpus.own.transpile import CannotTranslate, to_sqlite
from sqale_grpo.env.limits import SqlError
from sqale_grpo.env.sandbox import Sandbox
from sqale_grpo.env.syntax import is_ordered
from sqale_grpo.env.text import fold_name


@dataclass(frozen=True)
class Made:
    """A database of the corpus, with the source that it came from while that is open."""

    path: Path
    source: DatabaseSource
    tables: Sequence[SourceTable]
    cut: frozenset[str]


@dataclass(frozen=True)
class LeftOut:
    """A question that is not taken, and why."""

    asked: AskedQuestion
    reason: str


def take(
    questions: Sequence[AskedQuestion], made: Mapping[str, Made], dialect: str
) -> tuple[list[AskedQuestion], list[LeftOut]]:
    """The questions with SQL for SQLite, and those that are left out. SQLite's own dialect is taken as it comes."""
    if dialect == "sqlite":
        return list(questions), []
    taken, left = [], []
    for db_id, database in made.items():
        mine = [asked for asked in questions if asked.db_id == db_id]
        with Sandbox(database.path) as sandbox:
            for asked in mine:
                sql, reason = _translated(asked.sql, database, sandbox, dialect)
                if reason:
                    left.append(LeftOut(asked, reason))
                else:
                    taken.append(replace(asked, sql=sql))
    order = {id(asked.place): number for number, asked in enumerate(questions)}
    return sorted(taken, key=lambda asked: order[id(asked.place)]), left


def _translated(sql: str, database: Made, sandbox: Sandbox, dialect: str) -> tuple[str, str]:
    """(SQL for SQLite, why it is not taken)."""
    try:
        ours = to_sqlite(sql, dialect, database.tables)
    except CannotTranslate as error:
        return "", str(error)
    try:
        result = sandbox.execute(ours, MOST_ROWS)
    except SqlError as error:
        return "", f"SQLite does not run its translation: {error.message} ({ours})"
    cut = sorted(table for table in result.tables if fold_name(table) in set(map(fold_name, database.cut)))
    if cut:
        return "", f"it reads {cut[0]}, which --rows has cut, so the engines cannot be compared"
    return ours, different_rows(database.source, sql, result.rows, is_ordered(ours))
