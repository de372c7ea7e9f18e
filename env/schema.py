"""Schema graph: the tables of a SQLite database and the declared foreign keys between them.

It is read once, in a worker, and then answers from memory: which tables there are, what they look
like, how they join. The sampler grows databases along it, the tools and the join share look things up in it.
"""

import os
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from sqale_grpo.env.connect import live_uri, read_only_uri, real_path
from sqale_grpo.env.fulltext import content_table
from sqale_grpo.env.limits import Limits, Query
from sqale_grpo.env.pool import WorkerPool, default_pool
from sqale_grpo.env.text import fold_name

# Kind, name, statement, columns, keys: a row of ``env.catalog``, which only workers import.
Entry = tuple[str, str, str, list[tuple], list[tuple]]
MACHINE_TRIES = 3  # each is two; without its schema there is no episode that could be void
HINTS = {  # what SQLite says of a file that cannot be read, and what that means for its owner
    "file is not a database": ": another kind of file, or an encrypted database",
    "database is locked": " by a program that writes it; try again when it has finished",
}


@dataclass(frozen=True)
class ForeignKey:
    """A declared key that resolves: ``child.columns[i]`` refers to ``parent.parent_columns[i]``; names as declared."""

    child: str
    columns: tuple[str, ...]
    parent: str
    parent_columns: tuple[str, ...]

    def pairs(self) -> tuple[tuple[str, str], ...]:
        """(child column, parent column), one a column of the key."""
        return tuple(zip(self.columns, self.parent_columns, strict=True))


@dataclass(frozen=True)
class _Relation:
    """What the catalog says of one table or view."""

    name: str
    ddl: str
    columns: tuple[str, ...]
    primary_key: tuple[str, ...]


class SchemaGraph:
    """Tables as nodes, declared foreign keys as undirected edges. Immutable, safe to share between threads.

    ``tables``: base tables and virtual tables as declared, in creation order; SQLite's own and shadow tables left out.
    ``views``: views as declared. ``foreign_keys``: those that resolve, in the order of their declaration; a key to a
    missing table or column, to a view, or of another width than the parent's key gives no edge (our assumption).
    """

    tables: tuple[str, ...]
    views: tuple[str, ...]
    foreign_keys: tuple[ForeignKey, ...]

    def __init__(
        self, tables: Iterable[_Relation], views: Iterable[_Relation], foreign_keys: Iterable[ForeignKey]
    ) -> None:
        self._tables = {fold_name(table.name): table for table in tables}
        self._views = {fold_name(view.name): view for view in views}
        self.tables = tuple(table.name for table in self._tables.values())
        self.views = tuple(view.name for view in self._views.values())
        self.foreign_keys = tuple(foreign_keys)
        self._neighbors = _neighbors(self.tables, self.foreign_keys)

    @classmethod
    def from_catalog(cls, entries: Iterable[Entry]) -> "SchemaGraph":
        """From what ``env.catalog`` reads."""
        relations: dict[str, list[_Relation]] = {"table": [], "view": []}
        keys = {}
        for kind, name, ddl, columns, key_rows in entries:
            relations["table" if kind == "table" else "view"].append(_relation(name, ddl, columns))
            keys[name] = key_rows
        tables, views = relations.values()
        return cls(tables, views, _foreign_keys(tables, keys))

    @classmethod
    def from_file(cls, path: str | Path, pool: WorkerPool | None = None, immutable: bool = True) -> "SchemaGraph":
        """Read a database file, in a worker; remembered until its time or size, or its log's, changes.

        ``immutable``: nobody writes it meanwhile. Raises FileNotFoundError where there is no such file, ValueError
        where it is no SQLite database, or one in the middle of a change, OSError where it cannot be opened or the
        machine fails again and again.
        """
        if not os.path.isfile(path):
            raise FileNotFoundError(f"no database file at {path}")
        file = real_path(path)
        states = _state(file), _state(file.with_name(f"{file.name}-wal"))
        return _read_file(file, *states, immutable, pool or default_pool())

    def find(self, name: str) -> str | None:
        """The table's declared name, matched as SQLite does (ASCII case does not matter); None: no such table."""
        table = self._tables.get(fold_name(name))
        return table.name if table else None

    def find_view(self, name: str) -> str | None:
        """The view's declared name, matched like a table's; None: no such view."""
        view = self._views.get(fold_name(name))
        return view.name if view else None

    def columns(self, name: str) -> tuple[str, ...]:
        """Column names of a table or view, generated columns included. Raises KeyError for an unknown name.

        Empty for a view that SQLite cannot resolve and for a virtual table whose module is missing.
        """
        return self._relation(name).columns

    def ddl(self, name: str) -> str:
        """The stored CREATE statement of a table or view. Raises KeyError for an unknown name."""
        return self._relation(name).ddl

    def content(self, table: str) -> str | None:
        """The other table whose words this full-text table holds, or None. Raises KeyError for an unknown name."""
        name = content_table(self._relation(table).ddl)
        return None if name is None else self.find(name)

    def neighbors(self, table: str) -> tuple[str, ...]:
        """Tables that share a foreign key with this one, in either direction, sorted, without itself.

        Raises KeyError for an unknown name.
        """
        return self._neighbors[self._relation(table).name]

    def join_path(self, a: str, b: str) -> list[str] | None:
        """The shortest chain of tables from a to b along foreign keys, both ends included.

        Among equally short chains the first one in code-point order of the name lists, read from a (our
        assumption). A table's path to itself is itself; None where one is unknown or there is no chain.
        """
        start, goal = self.find(a), self.find(b)
        if start is None or goal is None:
            return None
        distance = self._distances(goal)
        if start not in distance:
            return None
        path = [start]
        while path[-1] != goal:
            nearer = distance[path[-1]] - 1
            path.append(next(table for table in self._neighbors[path[-1]] if distance[table] == nearer))
        return path

    def _distances(self, goal: str) -> dict[str, int]:
        """Number of joins to the goal, for every table that reaches it."""
        distance = {goal: 0}
        queue = deque([goal])
        while queue:
            table = queue.popleft()
            for neighbor in self._neighbors[table]:
                if neighbor not in distance:
                    distance[neighbor] = distance[table] + 1
                    queue.append(neighbor)
        return distance

    def _relation(self, name: str) -> _Relation:
        folded = fold_name(name)
        relation = self._tables.get(folded) or self._views.get(folded)
        if relation is None:
            raise KeyError(f"no table or view named {name!r}")
        return relation


def _state(file: Path) -> tuple[int, int] | None:
    """Time and size; None where there is no file."""
    try:
        state = file.stat()
    except FileNotFoundError:
        return None
    return state.st_mtime_ns, state.st_size


@lru_cache(maxsize=128)
def _read_file(file: Path, _state: object, _log_state: object, immutable: bool, pool: WorkerPool) -> SchemaGraph:
    """The states are here as part of the cache key only."""
    uri = read_only_uri(file) if immutable else live_uri(file)
    client = pool.client(uri, Limits(), live=not immutable)
    try:
        for _ in range(MACHINE_TRIES):
            ((kind, answer, *_),) = pool.run_many(client, [Query(None, 0, False)])
            if kind != "machine" or answer in HINTS:
                break
    finally:
        pool.forget(client)
    if kind == "machine" and answer not in HINTS:
        raise OSError(f"{file} cannot be read: {answer}")
    if kind:
        raise ValueError(f"{file} cannot be read as a SQLite database: {answer}{HINTS.get(answer, '')}")
    return SchemaGraph.from_catalog(answer)


def _relation(name: str, ddl: str, rows: Iterable[tuple]) -> _Relation:
    """From the rows of ``table_xinfo``."""
    # hidden = 1 marks the hidden columns of virtual tables; 2 and 3 are generated columns, which can be read.
    columns = tuple(column for _, column, _, _, _, _, hidden in rows if hidden != 1)
    keyed = sorted((rank, column) for _, column, _, _, _, rank, _ in rows if rank)
    return _Relation(name, ddl, columns, tuple(column for _, column in keyed))


def _foreign_keys(tables: list[_Relation], rows_of: Mapping[str, Iterable[tuple]]) -> list[ForeignKey]:
    known = {fold_name(table.name): table for table in tables}
    found: dict[object, ForeignKey] = {}
    for child in tables:
        for rows in _declared_keys(rows_of[child.name]):
            key = _resolve(child, rows, known)
            if key is not None:
                # The same key declared twice is one edge; the order of its pairs does not make it another.
                found.setdefault((key.child, key.parent, frozenset(key.pairs())), key)
    return list(found.values())


def _declared_keys(listed: Iterable[tuple]) -> list[list[tuple]]:
    """A table's declared keys in the order of their declaration, each as its rows of ``foreign_key_list``."""
    keys: dict[int, list[tuple]] = {}
    for row in listed:
        keys.setdefault(row[0], []).append(row)
    # SQLite numbers the keys from the last declared one backwards.
    return [sorted(keys[number]) for number in sorted(keys, reverse=True)]


def _resolve(child: _Relation, rows: list[tuple], tables: Mapping[str, _Relation]) -> ForeignKey | None:
    """The key with declared names; None where SQLite would report a mismatch of names or widths."""
    parent = tables.get(fold_name(rows[0][2]))
    if parent is None:
        return None
    declared = {fold_name(column): column for column in parent.columns}
    named = [row[4] for row in rows]
    # Without a column list the key refers to the parent's primary key; SQLite gives NULL for its columns then.
    wanted = parent.primary_key if named[0] is None else named
    targets = tuple(declared[name] for name in map(fold_name, wanted) if name in declared)
    if len(targets) != len(rows):
        return None
    return ForeignKey(child.name, tuple(row[3] for row in rows), parent.name, targets)


def _neighbors(tables: Iterable[str], keys: Iterable[ForeignKey]) -> dict[str, tuple[str, ...]]:
    linked: dict[str, set[str]] = {table: set() for table in tables}
    for key in keys:
        linked[key.child].add(key.parent)
        linked[key.parent].add(key.child)
    return {table: tuple(sorted(others - {table})) for table, others in linked.items()}
