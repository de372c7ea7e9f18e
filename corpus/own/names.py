"""What tables of several schemas are called in one SQLite database, whose names know no case and no schema."""

from collections.abc import Iterable

from sqale_grpo.env.text import fold_name

RESERVED = "sqlite_"


def new_names(places: Iterable[tuple[str, str]], usual: str, notes: list[str]) -> dict[tuple[str, str], str]:
    """(schema, table) to its name: its own, else with the schema before it, else with a number.

    Tables of the ``usual`` schema keep their names before others do. Whatever is called otherwise is told in ``notes``.
    """
    ordered = list(places)
    taken: dict[str, tuple[str, str]] = {}
    chosen: dict[tuple[str, str], str] = {}
    for place in sorted(ordered, key=lambda each: each[0] != usual):
        schema, table = place
        numbered = (f"{schema}_{table}_{number}" for number in range(2, len(ordered) + 3))
        free = (name for name in (table, f"{schema}_{table}", *numbered) if _is_free(name, taken))
        chosen[place] = next(free)
        taken[fold_name(chosen[place])] = place
        if chosen[place] != table:
            notes.append(f"the table {schema}.{table} is called {chosen[place]} here")
    return {place: chosen[place] for place in ordered}


def _is_free(name: str, taken: dict[str, tuple[str, str]]) -> bool:
    return fold_name(name) not in taken and not fold_name(name).startswith(RESERVED)
