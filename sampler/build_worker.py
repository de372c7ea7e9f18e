"""The process that builds episodes' databases (``env.builders``)."""

import os
import resource
from collections.abc import Callable, Sequence
from pathlib import Path

from sqale_grpo.env.builders import MEMORY_MB, serve
from sqale_grpo.env.worker import MB
from sqale_grpo.sampler.build import build_from
from sqale_grpo.sampler.overlay import overlay_database
from sqale_grpo.sampler.source import MissingExtension, SourceFile, read_source

WRITTEN = 4  # times the source's size that a build may write to a file, and so many bytes more
WRITTEN_BESIDES = 64 * MB

HOW: dict[str, Callable[[SourceFile, Sequence[str], Path], None]] = {"copy": build_from, "overlay": overlay_database}
Reply = tuple[str, str, int]


def main() -> None:
    """Serve until the parent closes the socket."""
    serve(answer)


def answer(how: str, path: bytes, tables: Sequence[str], out: bytes) -> Reply:
    """Kind, message and number of the error: ("", "", 0) for none."""
    source = Path(os.fsdecode(path))
    try:
        file = read_source(source)
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (WRITTEN * file.size + WRITTEN_BESIDES, hard))
        HOW[how](file, tables, Path(os.fsdecode(out)))
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
