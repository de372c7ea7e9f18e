"""The processes that build episodes' databases, as the one that asks sees them (``sampler.build_worker``)."""

import os
from collections.abc import Sequence
from pathlib import Path

from sqale_grpo.env.builders import Builders
from sqale_grpo.sampler.source import MissingExtension

BUILD_SECONDS = 60.0
COPIED_A_SECOND = 5 << 20  # bytes: a slow disk's pace, for files that must be copied although they are large
ATTEMPTS = 5  # a builder that the machine ends is no fault of the file, and without it there is no episode

builders = Builders("sqale_grpo.sampler.build_worker")


def run_builder(how: str, source: Path, tables: Sequence[str], out: Path) -> None:
    """``how``: "copy" or "overlay". Raises what ``build_database`` and ``overlay_database`` raise."""
    seconds = BUILD_SECONDS + source.stat().st_size / COPIED_A_SECOND
    try:
        reply = builders.ask((how, os.fsencode(source), tuple(tables), os.fsencode(out)), seconds, ATTEMPTS)
    except TimeoutError as error:
        raise ValueError(f"no database can be built from {source}: {error}") from None
    except EOFError as error:
        raise OSError(f"no database could be built from {source}: {error}") from None
    raise_error(*reply)


def raise_error(kind: str, message: str, number: int) -> None:
    """What the builder met, as an exception of this process."""
    if kind == "missing":
        raise MissingExtension(message)
    if kind == "value":
        raise ValueError(message)
    if kind == "not_found":
        raise FileNotFoundError(message)
    if kind == "os":
        raise OSError(number, message)
