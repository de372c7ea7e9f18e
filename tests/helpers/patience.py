"""How long "at once" may take on a machine that others use too."""

import os
from pathlib import Path


def patience() -> float:
    """By how much a bound on wall time is to be stretched here: 1 on an idle machine, more with each waiting process.

    The mean of the last minute lags behind, so the processes that can run at this moment count as well.
    """
    minute, _, _, now, _ = Path("/proc/loadavg").read_text().split()
    waiting = max(float(minute), int(now.partition("/")[0]) - 1)
    return max(1.0, 3 * waiting / len(os.sched_getaffinity(0)))
