"""Which tables an episode's database holds: gold tables first, then growth along foreign keys."""

import random
from bisect import insort
from collections.abc import Sequence

from sqale_grpo.env.schema import SchemaGraph

SCHEMAS = ("sampled", "gold", "distractors:N", "full")


def choose_tables(graph: SchemaGraph, gold_tables: Sequence[str], target: int, rng: random.Random) -> list[str]:
    """Names of the chosen tables, as declared, in a shuffled order.

    Starts from ``gold_tables``, adds a uniformly picked neighbour of the chosen set until ``target`` tables
    are chosen, and any other table where no neighbour is left (model card, "Environment"; that the pick is
    uniform is our assumption). More gold tables than ``target`` all stay; a schema smaller than ``target`` is
    used up. A full-text table brings the table along whose rows it indexes: its words are there with it. Raises
    ValueError for a gold table that the schema lacks.
    """
    chosen = _with_contents(graph, _declared(graph, gold_tables))
    taken = set(chosen)
    frontier: list[str] = []
    for table in chosen:
        _extend(frontier, taken, graph.neighbors(table))
    others = sorted(set(graph.tables) - taken)
    while len(chosen) < target and others:
        pool = frontier or others
        picked = pool[rng.randrange(len(pool))]
        for table in (name for name in _with_contents(graph, [picked]) if name not in taken):
            chosen.append(table)
            taken.add(table)
            others.remove(table)
            if table in frontier:
                frontier.remove(table)
            _extend(frontier, taken, graph.neighbors(table))
    rng.shuffle(chosen)
    return chosen


def select_tables(
    graph: SchemaGraph, gold_tables: Sequence[str], schema: str, rng: random.Random, low: int = 4, high: int = 64
) -> list[str]:
    """Tables of one episode under ``schema``, shuffled, as ``choose_tables`` gives them.

    ``sampled``: a target drawn uniformly from ``low`` to ``high``, both included (training; the uniform law is
    our assumption); ``gold``: gold tables only; ``distractors:N``: gold tables and N more, grown the same way;
    ``full``: the whole schema (the three sizes of the card's evaluation).
    """
    if schema == "sampled":
        if not 1 <= low <= high:
            raise ValueError(f"the table sampler needs 1 <= low <= high, not low={low}, high={high}")
        target = rng.randint(low, high)
    elif schema == "gold":
        target = 0
    elif schema == "full":
        target = len(graph.tables)
    else:
        target = len(_declared(graph, gold_tables)) + _distractors(schema)
    return choose_tables(graph, gold_tables, target, rng)


def _distractors(schema: str) -> int:
    kind, _, count = schema.partition(":")
    if kind != "distractors" or not count.isdecimal():
        raise ValueError(f"unknown schema {schema!r}; use one of {', '.join(SCHEMAS)} (as in distractors:32)")
    return int(count)


def _declared(graph: SchemaGraph, names: Sequence[str]) -> list[str]:
    """The names as the schema declares them, each once, in the order given."""
    found: dict[str, None] = {}
    for name in names:
        table = graph.find(name)
        if table is None:
            raise ValueError(f"gold table {name!r} is not in the schema, which has {len(graph.tables)} tables")
        found[table] = None
    return list(found)


def _with_contents(graph: SchemaGraph, tables: Sequence[str]) -> list[str]:
    """The tables, each followed by the one whose rows it indexes, and so on."""
    found: dict[str, None] = {}
    for table in tables:
        name: str | None = table
        while name is not None and name not in found:
            found[name] = None
            name = graph.content(name)
    return list(found)


def _extend(frontier: list[str], taken: set[str], neighbors: Sequence[str]) -> None:
    """Put those neighbours that are neither taken nor there yet into the sorted frontier."""
    for table in neighbors:
        if table not in taken and table not in frontier:
            insort(frontier, table)
