"""An independent comparator, as simple and slow as can be, to hold the project's against."""

import math

import networkx as nx

NUMBERS = (int, float)


def same_value(a, b):
    if isinstance(a, NUMBERS) and isinstance(b, NUMBERS):
        if isinstance(a, int) and isinstance(b, int):
            return a == b
        return math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-12)
    return type(a) is type(b) and a == b


def same_row(a, b):
    return len(a) == len(b) and all(same_value(x, y) for x, y in zip(a, b, strict=True))


def overlap(left, right):
    """Size of a largest matching of equal rows."""
    graph = nx.Graph()
    ours = [("left", i) for i in range(len(left))]
    graph.add_nodes_from(ours)
    graph.add_edges_from(
        (("left", i), ("right", j)) for i, a in enumerate(left) for j, b in enumerate(right) if same_row(a, b)
    )
    return len(nx.bipartite.hopcroft_karp_matching(graph, top_nodes=ours)) // 2


def equivalent(left, right, ordered):
    """Are two results of one width equal? Rows are struck off one by one; exact where near values form no chains."""
    if len(left) != len(right):
        return False
    if ordered:
        return all(same_row(a, b) for a, b in zip(left, right, strict=True))
    rest = list(right)
    for row in left:
        found = next((i for i, other in enumerate(rest) if same_row(row, other)), None)
        if found is None:
            return False
        del rest[found]
    return True
