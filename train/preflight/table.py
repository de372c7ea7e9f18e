"""One check's result, the worst of all processes', and the table of all."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from rich.console import Console
from rich.table import Table
from rich.text import Text

from sqale_grpo.env.errors import UserError, first_line
from sqale_grpo.env.text import harmless

State = Literal["right", "warned", "failed", "not made"]
GRAVITY: tuple[State, ...] = ("not made", "right", "warned", "failed")
WAY_ROUND = ". train.preflight=false starts the run all the same"
STYLES = {"right": "green", "warned": "yellow", "failed": "red", "not made": "dim"}


@dataclass(frozen=True)
class CheckRow:
    """What one check found, and where it is not right what to do about it."""

    name: str
    state: State
    found: str
    mend: str = ""
    seconds: float = 0.0


class PreflightFailed(UserError):
    """A check found something wrong: the run does not start."""

    exit_status = 1


def right(name: str, found: str) -> CheckRow:
    """A check that found nothing wrong."""
    return CheckRow(name, "right", found)


def failed(name: str, found: str, mend: str) -> CheckRow:
    """A check that found what must be mended first."""
    return CheckRow(name, "failed", found, mend)


def made(name: str, check: Callable[[], CheckRow], alone: bool = True) -> CheckRow:
    """Make one check; an error in it is a finding too.

    Not ``alone``: the other processes are inside the check and wait for this one. It is at its end then, by
    PreflightFailed, and its launcher ends the others.
    """
    started = time.monotonic()
    try:
        result = check()
    except Exception as error:  # whatever a first pass on a machine can raise
        if not alone:
            raise PreflightFailed(
                f"the preflight ended at {name}: {type(error).__name__}: {first_line(error)}"
            ) from error
        what = first_line(error) if isinstance(error, UserError) else f"{type(error).__name__}: {first_line(error)}"
        result = failed(name, what, "the check itself ended; SQALE_GRPO_TRACEBACK=1 shows where")
    return replace(result, name=name, seconds=time.monotonic() - started)


def worst(results: Sequence[CheckRow]) -> CheckRow:
    """Of one check's results on all processes, in the order of their numbers, the gravest; it names its process."""
    gravest = max(results, key=lambda each: GRAVITY.index(each.state))
    if len(results) == 1 or gravest.state in ("right", "not made"):
        return replace(gravest, seconds=max(each.seconds for each in results))
    return replace(gravest, found=f"process {results.index(gravest)}: {gravest.found}")


def show(results: Sequence[CheckRow], console: Console, title: str) -> None:
    """Print the table; what to do stands beside each failure."""
    table = Table(title=title)
    for column in ("check", "", "found", "mend", "s"):
        table.add_column(column, justify="right" if column == "s" else "left", overflow="fold")
    for each in results:
        table.add_row(
            each.name,
            f"[{STYLES[each.state]}]{each.state}[/]",
            Text(harmless(each.found)),
            Text(harmless(each.mend)),
            f"{each.seconds:.1f}",
        )
    console.print(table)


def decide(results: Sequence[CheckRow], what: str = "the preflight", way_round: str = WAY_ROUND) -> None:
    """PreflightFailed, in one sentence, where a check of ``what`` failed."""
    wrong = [each for each in results if each.state == "failed"]
    if wrong:
        first = wrong[0]
        more = f" (and {len(wrong) - 1} more in the table)" if len(wrong) > 1 else ""
        raise PreflightFailed(f"{what} failed at {first.name}: {first.found}; {first.mend}{more}{way_round}")
