"""How long "at once" may take on a machine that others use too."""

import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path


def patience() -> float:
    """By how much a bound on wall time is to be stretched here: 1 on an idle machine, more with each waiting process.

    The mean of the last minute lags behind, so the processes that can run at this moment count as well.
    """
    minute, _, _, now, _ = Path("/proc/loadavg").read_text().split()
    waiting = max(float(minute), int(now.partition("/")[0]) - 1)
    return max(1.0, 3 * waiting / len(os.sched_getaffinity(0)))


def wait_until(condition: Callable[[], bool], seconds: float = 5.0) -> bool:
    """Wait for it to hold; False where it does not in time."""
    end = time.monotonic() + seconds * patience()
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
    return condition()


def running(pid: int) -> bool:
    """Whether a process runs; one that has ended and waits to be reaped does not.

    A killed process whose first thread has ended may have another that still holds its sockets for a moment.
    """
    with suppress(OSError):
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        return state != "Z" or os.listdir(f"/proc/{pid}/task") != [str(pid)]
    return False
