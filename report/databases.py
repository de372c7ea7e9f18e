"""GroupResults of gold queries and answers, which the record does not hold: they are run again on the recorded tables.

Where the prepared corpus is, an episode's database is cut to its tables once more and each query runs in the sandbox.
Where it is not, and for what a report has no time for, the page says so.
"""

import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqale_grpo.corpus import CorpusError, PreparedCorpus, open_prepared
from sqale_grpo.env.limits import Limits, QueryResult, SqlError
from sqale_grpo.env.sandbox import Sandbox
from sqale_grpo.env.text import printable
from sqale_grpo.sampler import open_episode_database

ROWS = 12  # rows of a result that the page shows
CELL = 200  # characters of a value
COLUMNS = 24
SECONDS = 2.0  # of a query; a report is made in between: less than training grants
LATE = "the time that a report spends on queries was over"
THREADS = 4


@dataclass(frozen=True)
class GroupResults:
    """What a group's database says. ``missing``: why it could not be asked, or "".

    ``keys``: (child, parent) of its foreign keys. ``by_sql``: each query's result as the page shows it, either
    ``{"columns", "rows", "more"}`` or ``{"error"}``.
    """

    missing: str = ""
    keys: tuple[tuple[str, str], ...] = ()
    by_sql: dict[str, dict[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True)
class Wanted:
    """One group's request: its database, the tables that the episodes' database held, the queries to run."""

    db_id: str
    tables: tuple[str, ...]
    sqls: tuple[str, ...]


class Databases:
    """A prepared corpus' databases, where it is there; answers are remembered, for a report that is made again."""

    def __init__(self, folder: Path | None, why: str = "") -> None:
        """``folder``: the prepared corpus; None where it is not known, for the reason ``why``."""
        self._corpus: PreparedCorpus | None = None
        self._missing = why or "database not here: the run's configuration does not say where its corpus lies"
        self._known: dict[Wanted, GroupResults] = {}
        if folder is not None:
            try:
                self._corpus = open_prepared(folder)
            except CorpusError:
                self._missing = f"database not here: {folder} holds no prepared corpus"

    def results(self, wanted: Sequence[Wanted], until: float) -> list[GroupResults]:
        """The results of each request, in order; several databases are asked at once.

        From the moment ``until`` on, by ``time.monotonic``, no further one is asked; the next report may.
        """
        new = [request for request in dict.fromkeys(wanted) if request not in self._known]
        with ThreadPoolExecutor(THREADS) as pool:
            asked = list(pool.map(lambda request: self._ask(request) if time.monotonic() < until else None, new))
        self._known.update((request, results) for request, results in zip(new, asked, strict=True) if results)
        return [self._known.get(request, GroupResults(LATE)) for request in wanted]

    def _ask(self, wanted: Wanted) -> GroupResults:
        if self._corpus is None:
            return GroupResults(self._missing)
        try:
            source = self._corpus.database(wanted.db_id)
            limits = Limits(seconds=SECONDS)
            with (
                open_episode_database(source, wanted.tables) as database,
                Sandbox(database.path, limits, immutable=True) as sandbox,
            ):
                keys = tuple((key.child, key.parent) for key in sandbox.schema.foreign_keys)
                replies = sandbox.execute_many([(sql, ROWS) for sql in wanted.sqls])
        except (CorpusError, OSError, ValueError) as error:
            return GroupResults(f"database not here: {printable(str(error))}")
        shown = {sql: _shown(reply) for sql, reply in zip(wanted.sqls, replies, strict=True)}
        return GroupResults("", tuple(dict.fromkeys(keys)), shown)


def _shown(reply: QueryResult | SqlError) -> dict[str, Any]:
    if isinstance(reply, SqlError):
        if reply.kind == "timeout":
            return {"error": f"not finished within the {SECONDS:g} s that this report grants"}
        return {"error": printable(f"{reply.kind}: {reply.message}")[:CELL]}
    return {
        "columns": [printable(name)[:CELL] for name in reply.columns[:COLUMNS]],
        "rows": [[_cell(value) for value in row[:COLUMNS]] for row in reply.rows],
        "more": reply.truncated,
        "hidden_columns": max(0, len(reply.columns) - COLUMNS),
    }


def _cell(value: Any) -> str | int | float | None:
    """A value as JSON holds it: whole numbers beyond a double's precision and blobs become text."""
    if isinstance(value, bytes):
        return f"x'{value[:20].hex()}{'…' if len(value) > 20 else ''}' ({len(value)} bytes)"
    if isinstance(value, str):
        text = printable(value)
        return text if len(text) <= CELL else text[:CELL] + "…"
    if isinstance(value, float) or (isinstance(value, int) and abs(value) > 2**53):
        return str(value)
    return value


def queries(sqls: Iterable[str | None]) -> tuple[str, ...]:
    """The distinct queries among ``sqls``, in order, without empty ones."""
    return tuple(dict.fromkeys(sql for sql in sqls if sql and sql.strip()))
