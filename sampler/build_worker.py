"""The process that builds databases: takes requests, one at a time, over the socket that is its standard input."""

import marshal
import os
import resource
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from sqale_grpo.env.confinement import confine
from sqale_grpo.env.wire import Reader, framed, send
from sqale_grpo.env.worker import MB, SOCKET, limit_data
from sqale_grpo.sampler.build import build_from
from sqale_grpo.sampler.overlay import overlay_database
from sqale_grpo.sampler.source import MissingExtension, SourceFile, read_source

MEMORY_MB = 512  # what a build may add to the process' data
WRITTEN = 4  # times the source's size that a build may write to a file, and so many bytes more
WRITTEN_BESIDES = 64 * MB

HOW: dict[str, Callable[[SourceFile, Sequence[str], Path], None]] = {"copy": build_from, "overlay": overlay_database}
Reply = tuple[str, str, int]


def main() -> None:
    """Serve until the parent closes the socket."""
    with suppress(OSError), open("/proc/self/oom_score_adj", "w") as score:
        score.write("500")
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    limit_data(MEMORY_MB * MB)
    reader = Reader(SOCKET)
    send(SOCKET, framed(marshal.dumps(confine(writes=True))))
    with suppress(EOFError, ConnectionError):
        while True:
            how, source, tables, out = marshal.loads(reader.receive())
            reply = answer(how, Path(os.fsdecode(source)), tables, Path(os.fsdecode(out)))
            send(SOCKET, framed(marshal.dumps(reply)))


def answer(how: str, source: Path, tables: Sequence[str], out: Path) -> Reply:
    """Kind, message and number of the error: ("", "", 0) for none."""
    try:
        file = read_source(source)
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (WRITTEN * file.size + WRITTEN_BESIDES, hard))
        HOW[how](file, tables, out)
    except MissingExtension as error:
        return "missing", str(error), 0
    except FileNotFoundError as error:
        return "not_found", str(error), 0
    except ValueError as error:
        return "value", str(error), 0
    except MemoryError:
        return "value", f"no database can be built from {source}: it takes more than {MEMORY_MB} MB", 0
    except OSError as error:
        return "os", error.strerror or str(error), error.errno or 0
    return "", "", 0
