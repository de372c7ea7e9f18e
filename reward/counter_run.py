"""Queries on a counter-database in this process, bounded by SQLite's steps and not by the clock.

What a choice of copies depends on must not depend on the machine's load: a query that is too slow on one machine is too
slow on every one. For processes that may be ended, such as those that judge gold queries.
"""

import marshal
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass

from sqale_grpo.env.catalog import read_catalog
from sqale_grpo.env.limits import LARGEST, Limits, QueryResult
from sqale_grpo.env.query import Connection
from sqale_grpo.env.schema import SchemaGraph
from sqale_grpo.env.syntax import is_ordered
from sqale_grpo.reward.compare import compare
from sqale_grpo.reward.ties import tie_sizes

COPY_STEPS = 2_000_000  # of one query on a copy, some 20 ms
FULL_STEPS = 10_000_000  # and on the question's own database


class StepConnection(Connection):
    """An open connection that runs untrusted statements under the environment's authorizer and a bound of steps."""

    def __init__(self, opened: sqlite3.Connection, steps: int) -> None:
        super().__init__("", asdict(Limits(seconds=LARGEST, steps=steps)), opened=opened)

    def schema(self) -> SchemaGraph:
        """The database's tables and keys. Raises sqlite3.Error for a file that cannot be read."""
        with self.trusted():
            return SchemaGraph.from_catalog(read_catalog(self.sqlite, self.shadow, 0.0))

    def result(self, sql: str) -> QueryResult | None:
        """The result of a statement, None where it fails, takes too many steps or has too many rows."""
        kind, columns, _, found = self.run(sql, self.limits["rows"], False)
        if kind:
            return None
        return QueryResult(columns, [row for chunk in found[1] for row in marshal.loads(chunk)], False, frozenset())

    def rows(self, sql: str) -> list[tuple] | None:
        """The rows of a statement, None where there is no result."""
        result = self.result(sql)
        return None if result is None else result.rows

    @contextmanager
    def scanned_backwards(self) -> Iterator[None]:
        """Inside the block, SQLite scans tables last to first where no ORDER BY says otherwise."""
        self._set_scans("ON")
        try:
            yield
        finally:
            self._set_scans("OFF")

    def _set_scans(self, value: str) -> None:
        with self.trusted():
            self.sqlite.execute(f"PRAGMA reverse_unordered_selects = {value}")


@dataclass(frozen=True)
class Reference:
    """A gold query's result on one database, and how answers are held against it."""

    result: QueryResult
    ordered: bool
    ties: tuple[int, ...]

    @classmethod
    def of(cls, sql: str, rows_of: Callable[[str], list[tuple] | None], result: QueryResult) -> "Reference":
        """The reference that ``result`` is; ``rows_of`` runs a statement on the same database."""
        ordered = is_ordered(sql)
        return cls(result, ordered, tie_sizes(sql, result.rows, rows_of) if ordered else ())

    def matches(self, answer: QueryResult) -> bool:
        """Is the answer's result right here?"""
        return compare(answer, self.result, self.ordered, self.ties).equivalent


def reference(sql: str, connection: StepConnection) -> Reference | None:
    """The gold query's result; None where it does not run, or changes with the order in which SQLite scans."""
    result = connection.result(sql)
    if result is None:
        return None
    found = Reference.of(sql, connection.rows, result)
    with connection.scanned_backwards():
        again = connection.result(sql)
    return found if again is not None and found.matches(again) else None
