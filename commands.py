"""The programs of this project: ``sqale-grpo COMMAND ...``, and the same as ``python -m sqale_grpo.COMMAND ...``."""

import difflib
import io
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NamedTuple

from sqale_grpo.env.errors import UserError
from sqale_grpo.env.program import run_program

PIPED = "200"  # columns where nobody looks at a terminal: a table is as wide as it needs, to be searched and pasted
AGAIN = "stopped; the same command goes on with what is left"
UNDER_WAY = "interrupted; --resume goes on where the run's folder is there, else start it again"


class Command(NamedTuple):
    """A program: what it does, and what it says after Ctrl-C. Its module ``COMMAND.command`` defines ``main``."""

    does: str
    stopped: str = "stopped"


COMMANDS = {
    "demo": Command("watch GRPO teach a tiny policy", AGAIN),
    "train": Command(
        "train as a configuration says",
        UNDER_WAY,
    ),
    "evaluate": Command("evaluate a model; print tables of evaluations; replay an episode", AGAIN),
    "report": Command("one page with a run's curves and episodes"),
    "export": Command("write a checkpoint as a folder that others can load", "stopped; there is no export yet"),
    "sweep": Command("train every combination of a sweep file", AGAIN),
    "agent": Command("answer questions over a SQLite file with a model; `sqale-grpo ask` is the same"),
    "corpus": Command("prepare a corpus; print its figures", AGAIN),
    "env": Command("play an episode by hand"),
    "reward": Command("score answers from a file"),
}
ALIASES = {"ask": "agent"}
USAGE = """\
usage: sqale-grpo COMMAND ...

{commands}

sqale-grpo COMMAND --help says more. Start with: sqale-grpo demo
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command that the first argument names; returns the exit status."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if arguments is None:
        _fit_output()
    name, rest = (ALIASES.get(words[0], words[0]), words[1:]) if words else ("--help", [])
    if name in COMMANDS:
        return run_program(lambda: import_module(f"sqale_grpo.{name}.command").main(rest), COMMANDS[name].stopped)
    return run_program(lambda: _other(name))


def _fit_output() -> None:
    """Tables as wide as they need where no terminal is; a question mark for what an encoding lacks, not an error."""
    if not sys.stdout.isatty():
        os.environ.setdefault("COLUMNS", PIPED)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")


def run_package(name: str, package: str | None) -> int:
    """What ``python -m`` runs of the package ``name``; ``package`` is what Python took it for."""
    if package != f"sqale_grpo.{name}":
        return run_program(lambda: _moved(name))
    _fit_output()
    return main([name, *sys.argv[1:]])


def _other(name: str) -> int:
    if name in ("--help", "-h", "help"):
        lines = (f"  {command:10}{about.does}" for command, about in COMMANDS.items())
        print(USAGE.format(commands="\n".join(lines)), end="")
        return 0
    if name == "--version":
        print(_version())
        return 0
    close = difflib.get_close_matches(name, COMMANDS, 1)
    hint = f"; did you mean {close[0]}?" if close else f"; there are {', '.join(COMMANDS)}"
    raise UserError(f"there is no command {name!r}{hint}")


def _moved(name: str) -> int:
    raise UserError(f"`python -m {name}` is now `sqale-grpo {name}`, or `python -m sqale_grpo.{name}`")


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version  # late: it loads sockets and mail

    try:
        return version("sqale-grpo")
    except PackageNotFoundError:  # run from its sources without an installation
        return "unknown"
