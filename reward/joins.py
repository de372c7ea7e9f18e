"""Join share: how many of a query's joins follow a declared foreign key.

The card gives the name only; the rule is ours. Every SELECT that a statement's result can depend on (``reward.unread``)
has n - 1 joins for the n sources in its FROM.
A key is followed between two sources where all its column pairs stand as ``child.col = parent.col`` among the
top-level AND conjuncts of ON and WHERE, or come from USING or NATURAL. The joins along keys are the links of the
forest that these keys span, so the order in which the sources are written does not matter. Views, derived tables,
common table expressions and table-valued functions are sources without a key.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import lru_cache

from sqale_grpo.env.schema import SchemaGraph
from sqale_grpo.env.text import fold_name
from sqale_grpo.reward.statement import ColumnName, FromClause, Shared, from_clauses

Pair = tuple[str, str]  # folded column names of a child and of its parent
Place = tuple[int, str]  # a source, by its position in the FROM clause, and one of its columns, folded


def join_share(sql: str, schema: SchemaGraph) -> float:
    """Share of the statement's joins along a declared key, in [0, 1]; 0 without a join or where sqlglot fails."""
    total = along = 0
    for clause in from_clauses(sql) or ():
        total += len(clause.sources) - 1
        along += joins_along_keys(clause, schema)
    return along / total if total else 0.0


def joins_along_keys(clause: FromClause, schema: SchemaGraph) -> int:
    """Number of links in the forest that followed keys span between the sources of one FROM clause."""
    tables = [(schema.find(source.table) if source.table else None) or "" for source in clause.sources]
    keys = declared_keys(schema)
    root = list(range(len(tables)))
    links = 0
    for (i, j), pairs in equal_pairs(clause, tables, schema).items():
        if any(key <= pairs for key in keys.get((tables[i], tables[j]), ())):
            a, b = find_root(root, i), find_root(root, j)
            links += a != b
            root[a] = b
    return links


def find_root(root: list[int], i: int) -> int:
    """The source that stands for all that are linked with ``i``."""
    while root[i] != i:
        i = root[i]
    return i


@lru_cache(maxsize=64)
def declared_keys(schema: SchemaGraph) -> dict[tuple[str, str], list[frozenset[Pair]]]:
    """(child, parent) to the column pairs of each key between them."""
    keys: dict[tuple[str, str], list[frozenset[Pair]]] = defaultdict(list)
    for key in schema.foreign_keys:
        pairs = frozenset((fold_name(child), fold_name(parent)) for child, parent in key.pairs())
        keys[key.child, key.parent].append(pairs)
    return dict(keys)


def equal_pairs(clause: FromClause, tables: list[str], schema: SchemaGraph) -> dict[tuple[int, int], set[Pair]]:
    """For every two sources, in both directions, the column pairs that the clause sets equal."""
    pairs: dict[tuple[int, int], set[Pair]] = defaultdict(set)
    for a, b in equal_places(clause, tables, schema):
        if a[0] != b[0]:
            pairs[a[0], b[0]].add((a[1], b[1]))
            pairs[b[0], a[0]].add((b[1], a[1]))
    return pairs


def equal_places(clause: FromClause, tables: list[str], schema: SchemaGraph) -> Iterator[tuple[Place, Place]]:
    """The equalities of a clause between columns of base tables of the same clause."""
    for left, right in clause.equalities:
        a, b = locate(left, clause, tables, schema), locate(right, clause, tables, schema)
        if a is not None and b is not None:
            yield a, b
    merged: dict[str, list[int]] = {}  # a column that a USING or NATURAL join has merged, and the sources it is in
    for join in clause.shared:
        yield from shared_places(join, tables, schema, merged)


def locate(column: ColumnName, clause: FromClause, tables: list[str], schema: SchemaGraph) -> Place | None:
    """Where a column is; None for one of an outer query, of a source that is no base table, or of none."""
    qualifier, name = column
    if qualifier:
        where = next((i for i, source in enumerate(clause.sources) if source.alias == qualifier), None)
        return (where, name) if where is not None and tables[where] else None
    # A query that runs has no ambiguous names, so the first table with the column is the only one (or merged with it).
    return next(((i, name) for i in range(len(tables)) if name in columns_of(tables[i], schema)), None)


def shared_places(
    join: Shared, tables: list[str], schema: SchemaGraph, merged: dict[str, list[int]]
) -> Iterator[tuple[Place, Place]]:
    """The equalities that a USING or NATURAL join makes; ``merged`` learns its columns."""
    before, after = range(join.start), range(join.start, join.end)
    names: Iterable[str] = join.columns if join.columns is not None else shared_columns(before, after, tables, schema)
    for name in names:
        right = holders(name, after, tables, schema)
        left = merged.get(name) or holders(name, before, tables, schema)[:1]
        if right:
            yield from (((i, name), (right[0], name)) for i in left)
            merged[name] = left + right[:1]


def shared_columns(before: range, after: range, tables: list[str], schema: SchemaGraph) -> list[str]:
    """Columns that sources on both sides have, in a fixed order."""
    sides = [{name for i in side for name in columns_of(tables[i], schema)} for side in (before, after)]
    return sorted(sides[0] & sides[1])


def holders(name: str, places: range, tables: list[str], schema: SchemaGraph) -> list[int]:
    """The sources among ``places`` that have a column of this name."""
    return [i for i in places if name in columns_of(tables[i], schema)]


@lru_cache(maxsize=4_096)
def columns_of(table: str, schema: SchemaGraph) -> frozenset[str]:
    """Folded column names of a base table; none for "", which stands for any other source."""
    return frozenset(map(fold_name, schema.columns(table))) if table else frozenset()
