"""The record of an evaluation: one row an episode, in the columns of training's log and those of the metrics.

An evaluation lies in a folder: ``config.yaml``, ``episodes/NNNNNN.parquet`` (whole questions, each file written whole),
``summary.json`` (written last), ``failed.json`` while questions have none of their episodes for a failure.
"""

from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from sqale_grpo.env.files import whole_file
from sqale_grpo.rollout.record import SCHEMA, plain
from sqale_grpo.settings.run_folder import EPISODES

CONFIG, SUMMARY, FAILED = "config.yaml", "summary.json", "failed.json"

# What an evaluation knows beside training's columns. ``update``, ``bucket`` and ``advantage`` are empty here, ``gated``
# is false.
EVALUATION_COLUMNS = {
    "index": pa.int32(),  # the question's number in the prepared corpus: rows are ordered by it and the candidate
    "unstable": pa.string(),  # why the gold result may change between two runs, or ""
    "rounds": pa.int32(),
    "calls": pa.int32(),
    "distinct_calls": pa.int32(),
    "recall": pa.bool_(),  # every gold table was opened
    "literals_seen": pa.int32(),  # string literals of the gold query in a tool result before the answer ...
    "literals": pa.int32(),  # ... and all of them
    "stated_seen": pa.int32(),  # the same for those that the question states
    "stated": pa.int32(),
    "unstated_seen": pa.int32(),  # and for those that it does not
    "unstated": pa.int32(),
    "literals_used": pa.int32(),  # literals that the answer holds
    "unstated_used": pa.int32(),
    "official": pa.bool_(),  # the benchmark's own verdict; null where it has none
    "robust": pa.bool_(),  # right on the question's database and on its copies; null where no copies were looked at
    "gold_empty": pa.bool_(),  # the gold result has no rows
    "result_class": pa.int32(),  # equal for candidates of a question with equal results; null: the answer did not run
    "processed_tokens": pa.int64(),
    "reprocessed_tokens": pa.int64(),
}
RECORD = pa.schema([*SCHEMA, *(pa.field(name, kind) for name, kind in EVALUATION_COLUMNS.items())])


@dataclass(frozen=True)
class TokenCounts:
    """Tokens of one episode: the record's columns that the backend knows. All 0 where no model played.

    ``completion_tokens`` are all after the prompt, tool text included; ``written_tokens`` those that the policy wrote.
    ``processed_tokens`` counts every token of the episode once (a prefix cache between turns), ``reprocessed_tokens``
    the whole context again at every turn (no cache).
    """

    prompt_tokens: int = 0
    completion_tokens: int = 0
    written_tokens: int = 0
    processed_tokens: int = 0
    reprocessed_tokens: int = 0

    def columns(self) -> dict[str, int]:
        """The counts by column."""
        return asdict(self)


def token_counts(prompt_tokens: int, env_mask: Iterable[int]) -> TokenCounts:
    """The counts of an episode from its prompt's length and its mask (1: the policy wrote the token)."""
    mask = list(env_mask)
    # A turn is a run of written tokens: without a cache it costs all that stands before its end.
    ends = [at + 1 for at, written in enumerate(mask) if written and (at + 1 == len(mask) or not mask[at + 1])]
    return TokenCounts(
        prompt_tokens,
        len(mask),
        sum(mask),
        prompt_tokens + len(mask),
        sum(prompt_tokens + end for end in ends),
    )


def write_records(folder: Path, number: int, records: Iterable[dict[str, Any]]) -> Path:
    """Write ``folder/episodes/NNNNNN.parquet`` whole; columns that a record lacks are null. Returns the path."""
    directory = folder / EPISODES
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{number:06d}.parquet"
    rows = [{name: plain(value) for name, value in record.items()} for record in records]
    with whole_file(path) as file:
        pq.write_table(pa.Table.from_pylist(rows, RECORD), file)
    return path


def record_files(folder: Path) -> list[Path]:
    """The files of an evaluation's episodes, in the order in which they were written."""
    return sorted((folder / EPISODES).glob("*.parquet"))


def read_records(folder: Path, leave_out: Collection[str] = ()) -> list[dict[str, Any]]:
    """All rows of an evaluation, by question and candidate: the same order however often it was interrupted.

    Empty where nothing was played yet. Columns to ``leave_out`` are not read (the turns are nearly all of a file).
    """
    columns = [name for name in RECORD.names if name not in leave_out]
    tables = [pq.read_table(path, schema=RECORD, columns=columns) for path in record_files(folder)]
    rows = [row for table in tables for row in table.to_pylist()]
    return sorted(rows, key=lambda row: (row["index"], row["candidate"]))
