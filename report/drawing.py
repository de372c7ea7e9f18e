"""Drawing of a database's foreign-key graph: columns by distance from the gold tables, computed without chance.

A position is (column, row) on a grid; the page turns it into pixels. Tables with no key path to a gold table stand
in columns of their own at the right end.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

ROWS = 12  # tables one above the other in a column
SWEEPS = 4


@dataclass(frozen=True)
class Drawing:
    """``positions[i]``: (column, row) of table i. ``edges``: pairs of table numbers, child first, each pair once."""

    positions: tuple[tuple[int, float], ...]
    edges: tuple[tuple[int, int], ...]


def draw(tables: Sequence[str], keys: Iterable[tuple[str, str]], gold: Iterable[str]) -> Drawing:
    """Lay out ``tables``; ``keys`` are (child, parent) names. Names that are no table are left out."""
    number = {table.lower(): index for index, table in enumerate(tables)}
    pairs = [(number[a.lower()], number[b.lower()]) for a, b in keys if a.lower() in number and b.lower() in number]
    edges = tuple(dict.fromkeys(pair for pair in pairs if pair[0] != pair[1]))
    neighbors: dict[int, list[int]] = {index: [] for index in range(len(tables))}
    for child, parent in edges:
        neighbors[child].append(parent)
        neighbors[parent].append(child)
    start = [number[name.lower()] for name in gold if name.lower() in number]
    columns: list[list[int]] = []
    for layer in _layers(neighbors, start):
        columns += [layer[first : first + ROWS] for first in range(0, len(layer), ROWS)]
    return Drawing(_place(columns, neighbors, len(tables)), edges)


def _layers(neighbors: dict[int, list[int]], start: list[int]) -> list[list[int]]:
    """Tables by distance from ``start``; what cannot be reached comes last, keyed tables before lone ones."""
    layers, seen = [], set(start)
    layer = list(dict.fromkeys(start))
    while layer:
        layers.append(layer)
        layer = [other for table in layer for other in neighbors[table] if other not in seen]
        layer = list(dict.fromkeys(layer))
        seen.update(layer)
    rest = [table for table in neighbors if table not in seen]
    return [*layers, sorted(rest, key=lambda table: not neighbors[table])] if rest else layers


def _place(columns: list[list[int]], neighbors: dict[int, list[int]], count: int) -> tuple[tuple[int, float], ...]:
    """Order each column by the mean height of its tables' neighbours, a few times over, then centre it."""
    tallest = max(map(len, columns), default=0)
    heights = {table: row + (tallest - len(column)) / 2 for column in columns for row, table in enumerate(column)}

    def pull(table: int) -> float:
        near = neighbors[table]
        return sum(heights[other] for other in near) / len(near) if near else heights[table]

    for sweep in range(SWEEPS):
        for column in columns if sweep % 2 == 0 else reversed(columns):
            column.sort(key=pull)
            for row, table in enumerate(column):
                heights[table] = row + (tallest - len(column)) / 2
    where = {table: index for index, column in enumerate(columns) for table in column}
    return tuple((where[table], heights[table]) for table in range(count))
