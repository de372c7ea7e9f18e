"""How every program ends: one sentence for a mistake, the program's own hint after Ctrl-C, no traceback for either."""

import ctypes
import os
import signal
import sys
from collections.abc import Callable

from sqale_grpo.env.errors import UserError, system_sentence
from sqale_grpo.env.text import harmless

TRACEBACK = "SQALE_GRPO_TRACEBACK"  # set to 1: errors keep their traceback
INTERRUPTED = 128 + signal.SIGINT
CLOSED_PIPE = 128 + signal.SIGPIPE
PR_SET_PDEATHSIG = 1  # linux/prctl.h


def run_program(run: Callable[[], int | None], stopped: str = "") -> int:
    """Run a program and return its exit status.

    Its own status, or 0; a UserError's, or 2 for what the system refuses (OSError: a missing file, a full disk), each
    after one sentence on standard error; 130 after Ctrl-C, with the hint ``stopped``; 141 where the reader of its
    output has gone (``| head``). Every other error is a fault of the project and keeps its traceback.
    """
    try:
        return run() or 0
    except KeyboardInterrupt:
        print(f"\n{stopped}" if stopped else "", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError as error:
        if not error.errno:  # raised by hand: a process that went away, not our reader
            return _told(error)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # where the rest of the buffer goes
        return CLOSED_PIPE
    except (UserError, OSError) as error:
        return _told(error)
    except ModuleNotFoundError as error:
        needed = (error.name or "").partition(".")[0]
        if needed in ("", "sqale_grpo"):
            raise
        return _told(UserError(f"this command needs the package {needed}; install it: pip install 'sqale-grpo[train]'"))


def _told(error: UserError | OSError) -> int:
    if os.environ.get(TRACEBACK) == "1":
        raise error
    text = system_sentence(error) if isinstance(error, OSError) else str(error) or type(error).__name__
    sentence = " ".join(text.split())
    print(f"error: {harmless(sentence)}", file=sys.stderr)
    return error.exit_status if isinstance(error, UserError) else UserError.exit_status


def die_with(parent: int) -> Callable[[], None]:
    """What a child calls at its start. Linux: the kernel ends it when ``parent`` is gone, kill -9 included.

    Elsewhere: nothing.
    """
    try:
        prctl = ctypes.CDLL(None).prctl
    except AttributeError:
        return lambda: None

    def request() -> None:
        prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            os._exit(1)  # it went between the fork and the request

    return request
