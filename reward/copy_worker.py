"""The process that builds counter-databases for scoring: takes requests, one at a time, over its standard input.

A file brings expressions along, which SQLite evaluates while rows are stored; so the trainer does not build copies
itself (``sampler.build_worker`` is the same for episode databases).
"""

import marshal
import os
import resource
import sqlite3
from contextlib import closing, suppress

from sqale_grpo.env.confinement import confine
from sqale_grpo.env.query import verdict
from sqale_grpo.env.wire import Reader, framed, send
from sqale_grpo.env.worker import MB, SOCKET, limit_data
from sqale_grpo.reward.counter import CopyPlan
from sqale_grpo.reward.counter_build import CopyBuilder, NoCopy

MEMORY_MB = 512  # what a build may add to the process' data
WRITTEN = 1024 * MB  # bytes of a file: a copy holds a few thousand rows a table

# Tables that the copy lacks, why there is none, why the machine could not make it: one of them counts.
Reply = tuple[list[str], str, str]


def main() -> None:
    """Serve until the parent closes the socket."""
    with suppress(OSError), open("/proc/self/oom_score_adj", "w") as score:
        score.write("500")
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (WRITTEN, WRITTEN))
    limit_data(MEMORY_MB * MB)
    reader = Reader(SOCKET)
    send(SOCKET, framed(marshal.dumps(confine(writes=True))))
    with suppress(EOFError, ConnectionError):
        while True:
            source, plan, seed, others, target = marshal.loads(reader.receive())
            send(SOCKET, framed(marshal.dumps(answer(source, CopyPlan(*plan), seed, others, os.fsdecode(target)))))


def answer(source: str, plan: CopyPlan, seed: int, others: list[str], target: str) -> Reply:
    """Build one copy at the path ``target``, whatever is there."""
    try:
        with closing(CopyBuilder(source, plan).build(target, seed, others)) as copy:
            return sorted(copy.left_out), "", ""
    except NoCopy as error:
        return [], str(error) or "it cannot be made", ""
    except MemoryError:
        return [], f"it takes more than {MEMORY_MB} MB", ""
    except sqlite3.Error as error:
        _, message = verdict(error, 0.0)
        return [], "", message
