"""The project's programs as a person runs them, within this process."""

from collections.abc import Callable, Sequence

from sqale_grpo import commands


def program(name: str) -> Callable[[Sequence[str]], int]:
    """``sqale-grpo NAME`` as a function: it takes the arguments and returns the exit status."""
    return lambda arguments: commands.main([name, *map(str, arguments)])
