"""Exact counts of the episodes in a folder's parquet files: every episode, but only the columns that are counted.

A file is read once: it is written whole and never changes but by a resume, which its size or time shows.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

COLUMNS = ("update", "question_id", "bucket", "tier", "ended_by", "reward", "gated")
TIERS = ("equivalent", "executable", "parsable", "invalid")


@dataclass(frozen=True)
class Group:
    """Rows ``first`` … ``first + len(tiers) - 1`` of ``file``: the candidates of one question in one update.

    ``update`` is -1 in an evaluation.
    """

    file: Path
    first: int
    update: int
    question_id: str
    tiers: tuple[str, ...]


@dataclass(frozen=True)
class FileCounts:
    """What one file holds. ``reward`` is a sum, ``by`` counts the values of tier, bucket and ended_by."""

    update: int
    episodes: int
    reward: float
    gated: int
    by: dict[str, Counter[str]]
    groups: tuple[Group, ...]


def count_file(path: Path) -> FileCounts:
    """Count one file. Raises ValueError (pyarrow's) where it is no parquet file with these columns."""
    with pq.ParquetFile(path) as file:
        columns = file.read(columns=list(COLUMNS), use_threads=False).to_pydict()
    updates = [-1 if update is None else update for update in columns["update"]]
    keys = list(zip(updates, columns["question_id"], strict=True))
    groups, first = [], 0
    for (update, question), members in groupby(keys):
        size = len(list(members))
        groups.append(Group(path, first, update, question or "", tuple(columns["tier"][first : first + size])))
        first += size
    by = {name: Counter(value for value in columns[name] if value) for name in ("tier", "bucket", "ended_by")}
    rewards = sum(value or 0.0 for value in columns["reward"])
    return FileCounts(
        updates[0] if updates else -1, first, rewards, sum(map(bool, columns["gated"])), by, tuple(groups)
    )


class Reader:
    """Counts of files, each read once; kept while a report is watched."""

    def __init__(self) -> None:
        self._known: dict[Path, tuple[tuple[int, int], FileCounts]] = {}

    def counts(self, files: Iterable[Path]) -> tuple[list[FileCounts], list[str]]:
        """The counts of each file that can be read, and a note on each that cannot."""
        found, notes = [], []
        for path in files:
            try:
                state = path.stat()
                stamp = (state.st_mtime_ns, state.st_size)
                if self._known.get(path, (None,))[0] != stamp:
                    self._known[path] = (stamp, count_file(path))
                found.append(self._known[path][1])
            except (OSError, pa.ArrowException) as error:
                notes.append(f"{path.name} cannot be read and was left out: {str(error).splitlines()[0]}")
        return found, notes
