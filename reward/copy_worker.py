"""The process that builds counter-databases for scoring (``env.builders``)."""

import os
import resource
import sqlite3
from contextlib import closing

from sqale_grpo.env.builders import MEMORY_MB, serve
from sqale_grpo.env.verdict import verdict
from sqale_grpo.env.worker import MB
from sqale_grpo.reward.counter import CopyPlan
from sqale_grpo.reward.counter_build import CopyBuilder, NoCopy

WRITTEN = 1024 * MB  # bytes of a file: a copy holds a few thousand rows a table

# Tables that the copy lacks, why there is none, why the machine could not make it: one of them counts.
Reply = tuple[list[str], str, str]


def main() -> None:
    """Serve until the parent closes the socket."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (WRITTEN, WRITTEN))
    serve(answer)


def answer(source: str, plan: tuple, seed: int, others: list[str], target: bytes) -> Reply:
    """Build one copy at the path ``target``, whatever is there."""
    try:
        with closing(CopyBuilder(source, CopyPlan(*plan)).build(os.fsdecode(target), seed, others)) as copy:
            return sorted(copy.left_out), "", ""
    except NoCopy as error:
        return [], str(error) or "it cannot be made", ""
    except MemoryError:
        return [], f"it takes more than {MEMORY_MB} MB", ""
    except sqlite3.Error as error:
        _, message = verdict(error, 0.0)
        return [], "", message
