"""Views of a source and the tables that each reads: an episode's database has those whose tables it all has.

SQLite says what a view reads while it compiles it, so nothing is parsed here. Left out, whatever the tables: a view
that does not compile, that reads the schema or no table, or that grows beyond ``MOST_PARTS`` when views inside it are
written out (views that double each other would take for ever to compile).
"""

import re
import sqlite3
from collections.abc import Collection
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from sqale_grpo.env.text import fold_name, quote_name
from sqale_grpo.sampler.source import Selection, SourceFile, open_source

MOST_PARTS = 200
_OF_THE_SCHEMA = ("sqlite_", "pragma_")


class ViewEntry(NamedTuple):
    """A view in the source's catalog; ``tables``: the base tables that it reads, through views too, folded."""

    rowid: int
    name: str
    tables: frozenset[str]


@lru_cache(maxsize=64)  # a builder meets the same source for every group of a database
def view_entries(file: SourceFile) -> tuple[ViewEntry, ...]:
    """The views that an episode's database may have, in creation order. Raises ValueError where the file is broken."""
    with open_source(file) as connection:
        stored = connection.execute(
            "SELECT rowid, type, name, coalesce(sql, '') FROM source.sqlite_master "
            "WHERE type IN ('table', 'view') ORDER BY rowid"
        ).fetchall()
        views = {fold_name(name): sql for _, kind, name, sql in stored if kind == "view"}
        tables = {fold_name(name) for _, kind, name, _ in stored if kind == "table"}
        found = []
        for rowid, kind, name, _ in stored:
            if kind == "view" and _parts(fold_name(name), views, {}) <= MOST_PARTS:
                read = _reads(connection, name, views.keys())
                # The rest are common tables and table-valued functions.
                if read & tables and not any(each.startswith(_OF_THE_SCHEMA) for each in read):
                    found.append(ViewEntry(rowid, name, read & tables))
        return tuple(found)


def with_views(selection: Selection, file: SourceFile) -> Selection:
    """The same selection with the views that read nothing but its tables."""
    chosen = {fold_name(entry.name) for entry in selection.parts if not entry.is_index}
    return replace(selection, views=tuple(view.rowid for view in view_entries(file) if view.tables <= chosen))


def _parts(name: str, views: dict[str, str], known: dict[str, int]) -> int:
    """How many views a view comes to when those inside it are written out; one more than ``MOST_PARTS`` is enough."""
    if name not in known:
        known[name] = MOST_PARTS + 1  # a view inside itself
        words = re.findall(r"[^\s(),;.\"'`\[\]]+|\"[^\"]*\"", fold_name(views[name]))
        inner = [word.strip('"') for word in words]
        known[name] = 1 + sum(_parts(word, views, known) for word in inner if word in views and word != name)
    return min(known[name], MOST_PARTS + 1)


def _reads(connection: sqlite3.Connection, name: str, views: Collection[str]) -> frozenset[str]:
    """Names, folded, of all that SQLite reads for the view but views; none where it does not compile."""
    read: set[str] = set()

    def note(action: int, first: str | None, second: str | None, schema: str | None, inside: str | None) -> int:
        if action == sqlite3.SQLITE_READ and first:
            read.add(fold_name(first))
        return sqlite3.SQLITE_OK

    connection.set_authorizer(note)
    try:
        connection.execute(f"EXPLAIN SELECT * FROM source.{quote_name(name)}")
    except (sqlite3.Error, UnicodeError):
        return frozenset()
    finally:
        connection.set_authorizer(None)
    return frozenset(read - set(views))
