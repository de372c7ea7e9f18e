"""Answers that read no table: the gold result as constants, right wherever a reward looks at one database alone."""

from collections.abc import Iterator, Sequence

from sqale_grpo.reward.mutations import Mutant

CONSTANT = "constant"
CONSTANT_ROWS = 5


def constants(rows: Sequence[tuple], width: int) -> Iterator[Mutant]:
    """Answers that read no table: the gold result's rows as constants, where they are few, and no rows at all."""
    if 0 < len(rows) <= CONSTANT_ROWS and width and all(plain(value) for row in rows for value in row):
        listed = ", ".join(f"({', '.join(map(literal, row))})" for row in rows)
        yield Mutant(CONSTANT, f"VALUES {listed}")
    if not rows and width:
        yield Mutant(CONSTANT, f"SELECT {', '.join(['NULL'] * width)} WHERE 0")


def plain(value: object) -> bool:
    """Can the value be written as SQL without loss?"""
    return value is None or isinstance(value, int | str) and "\0" not in str(value)


def literal(value: object) -> str:
    """A value as SQL."""
    if value is None:
        return "NULL"
    return str(value) if isinstance(value, int) else "'" + str(value).replace("'", "''") + "'"
