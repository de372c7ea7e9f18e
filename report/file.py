"""The report as a file."""

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from report.folders import ReportError, RunFolder, open_folders
from report.page import GROUPS, Page


def write_report(runs: Sequence[Path], out: Path, groups: int = GROUPS) -> Path:
    """Write the page of ``runs`` to ``out`` and return it; ``groups``: most groups of episodes that it holds.

    Raises ReportError for a folder that is no run's, where there is nothing to show yet, and where ``out`` cannot be
    written.
    """
    folders = open_folders(runs)
    if all(not folder.files and not (isinstance(folder, RunFolder) and folder.metrics) for folder in folders):
        names = ", ".join(str(folder.path) for folder in folders)
        raise ReportError(f"{names}: the first update is not finished yet; --watch shows it as soon as it is")
    if os.path.isdir(out):  # False for a name that no file can have
        raise ReportError(f"{out} is a folder: name a file, as --out {out / 'report.html'}")
    html = Page(groups).render(folders)
    partial = out.with_name(out.name + ".partial")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        partial.write_text(html, encoding="utf-8", errors="replace")
        os.replace(partial, out)
    except OSError as error:
        with suppress(OSError):
            partial.unlink()
        raise ReportError(f"{out} cannot be written ({error.strerror}): name another file with --out") from error
    return out
