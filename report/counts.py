"""Exact counts of the episodes in a folder's parquet files: every episode, but only the columns that are counted.

A file is read once: it is written whole and never changes but by a resume, which its size or time shows.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from sqale_grpo.env.errors import first_line
from sqale_grpo.rollout.record import SCHEMA

COLUMNS = ("update", "question_id", "candidate", "bucket", "tier", "ended_by", "reward", "gated")
COUNTED = ("tier", "bucket", "ended_by")
# Void: the machine failed, so that nothing is said of the answer; it has no reward.
TIERS = ("equivalent", "executable", "parsable", "invalid", "void")


@dataclass(frozen=True)
class RecordedGroup:
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
    """What one file holds. ``reward`` is a mean, ``gated`` a sum, ``by`` counts the values of ``COUNTED``.

    A column that the file does not have, as files of an older version, is None or not in ``by``.
    """

    update: int
    episodes: int
    reward: float | None
    gated: int | None
    by: dict[str, Counter[str]]
    groups: tuple[RecordedGroup, ...]

    def number(self, column: str, value: str) -> int | None:
        """How many episodes have ``value`` in ``column``; None where the file does not say."""
        return self.by[column][value] if column in self.by else None


def count_file(path: Path) -> FileCounts:
    """Count one file. Raises pyarrow's errors where it is no parquet file or has other kinds of values."""
    table, known = read_columns(path, COLUMNS)
    columns = table.to_pydict()
    updates = [-1 if update is None else update for update in columns["update"]]
    questions, candidates = columns["question_id"], [candidate or 0 for candidate in columns["candidate"]]
    # A group's candidates rise, so that a question that an update asks twice is two groups.
    starts = [
        row
        for row in range(len(table))
        if row == 0
        or (updates[row], questions[row]) != (updates[row - 1], questions[row - 1])
        or candidates[row] < candidates[row - 1]
    ]
    groups = tuple(
        RecordedGroup(
            path, first, updates[first], questions[first] or "", tuple(t or "" for t in columns["tier"][first:end])
        )
        for first, end in zip(starts, [*starts[1:], len(table)], strict=False)
    )
    rewards = [value for value in columns["reward"] if value is not None]  # a void candidate has none
    return FileCounts(
        updates[0] if updates else -1,
        len(table),
        sum(rewards) / len(rewards) if rewards else None,
        sum(map(bool, columns["gated"])) if "gated" in known else None,
        {name: Counter(value for value in columns[name] if value) for name in COUNTED if name in known},
        groups,
    )


def read_columns(path: Path, names: Sequence[str]) -> tuple[pa.Table, set[str]]:
    """The columns of a file of episodes, as training's record has them, and which of them the file has.

    What it has not is null. Raises pyarrow's errors where it is no such file.
    """
    with pq.ParquetFile(path) as file:
        known = set(names) & set(file.schema_arrow.names)
        table = file.read(columns=sorted(known), use_threads=False)
    columns = [
        table[name].cast(SCHEMA.field(name).type) if name in known else pa.nulls(len(table), SCHEMA.field(name).type)
        for name in names
    ]
    return pa.table(columns, names=list(names)), known


class CountReader:
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
                if self._known[path][1].episodes:
                    found.append(self._known[path][1])
            except (OSError, pa.ArrowException) as error:
                notes.append(f"{path.name} cannot be read and was left out: {first_line(error)}")
        return found, notes
