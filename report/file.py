"""The report as a file."""

import os
from collections.abc import Sequence
from pathlib import Path

from report.folders import ReportError, RunFolder, open_folders
from report.page import GROUPS, Page


def write_report(runs: Sequence[Path], out: Path, groups: int = GROUPS) -> Path:
    """Write the page of ``runs`` to ``out`` and return it; ``groups``: most groups of episodes that it holds.

    Raises ReportError for a folder that is no run's, and where there is nothing to show yet.
    """
    folders = open_folders(runs)
    if all(not folder.files and not (isinstance(folder, RunFolder) and folder.metrics) for folder in folders):
        names = ", ".join(str(folder.path) for folder in folders)
        raise ReportError(f"{names}: the first update is not finished yet; --watch shows it as soon as it is")
    out.parent.mkdir(parents=True, exist_ok=True)
    partial = out.with_name(out.name + ".partial")
    partial.write_text(Page(groups).render(folders), encoding="utf-8", errors="replace")
    os.replace(partial, out)
    return out
