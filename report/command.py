"""The run report: curves, evaluations and every turn of the episodes, as one page.

    sqale-grpo report RUN [RUN ...] [--out report.html]
    sqale-grpo report RUN [RUN ...] --watch [--port 8400]

RUN is a run's folder, with the evaluations in it, or an evaluation's. Several are laid over each other.
"""

import argparse
import signal
import time
from pathlib import Path

from sqale_grpo.env.text import harmless
from sqale_grpo.report.folders import ReportError
from sqale_grpo.report.page import GROUPS, Page, write_report
from sqale_grpo.report.watch import HOST, make_server

WAIT_SECONDS = 0.5


def watch(runs: list[Path], port: int, groups: int) -> None:
    """Serve the report until Ctrl-C. Raises ReportError where a folder or the port is not usable.

    A run that has not begun is waited for, where the folder that it will lie in is there.
    """
    for run in runs:
        if not run.parent.is_dir():
            raise ReportError(f"there is no folder {run}: name a run's folder, OUTPUT/NAME of its configuration")
        if not run.is_dir():
            print(f"there is no {run} yet: waiting for it to begin; Ctrl-C ends this", flush=True)
        while not run.is_dir():
            time.sleep(WAIT_SECONDS)
    try:
        server = make_server(runs, Page(groups), port)
    except OSError as error:
        reason = f"port {port} cannot be used ({error.strerror})"
        raise ReportError(f"{reason}: name another one, --port 0 takes a free one") from error
    # A shell that starts a program in the background has it ignore Ctrl-C; kill ends it the same way.
    for name in (signal.SIGINT, signal.SIGTERM):
        signal.signal(name, signal.default_int_handler)
    print(f"the report is at http://{HOST}:{server.server_address[1]}/ and follows the run; Ctrl-C ends it", flush=True)
    try:
        server.serve_forever(poll_interval=0.2)
    except KeyboardInterrupt:
        print()
    finally:
        server.server_close()


def main(arguments: list[str] | None = None) -> int:
    """Write or serve a report, as the arguments say. Raises ReportError."""
    parser = argparse.ArgumentParser(
        prog="sqale-grpo report", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="folder of a run or an evaluation")
    parser.add_argument("--out", type=Path, help="the page's file (default: report.html in the first RUN)")
    parser.add_argument("--watch", action="store_true", help="serve the page on 127.0.0.1 and follow the run")
    parser.add_argument("--port", type=int, default=8400, help="with --watch (default: %(default)s)")
    parser.add_argument(
        "--groups", type=int, default=GROUPS, help="most groups of episodes in the page (default: %(default)s)"
    )
    given = parser.parse_args(arguments)
    if given.groups < 1:
        raise ReportError(f"--groups {given.groups}: a page holds at least one group")
    if not 0 <= given.port <= 65_535:
        raise ReportError(f"--port {given.port}: ports are 0 to 65535")
    if given.watch and given.out:
        raise ReportError("--watch serves the page and --out writes it: give one of them")
    if given.watch:
        watch(given.runs, given.port, given.groups)
        return 0
    out = write_report(given.runs, given.out or given.runs[0] / "report.html", given.groups)
    print(f"the report is {harmless(str(out))} ({out.stat().st_size / 1e6:.1f} MB)")
    return 0
