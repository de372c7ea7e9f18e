"""The record of a run: every episode of every update, one parquet file an update.

Report, viewer and analysis read these files and nothing else. A file is written under another name and then renamed,
so it is whole or not there; a resumed run removes those after its checkpoint and writes them again.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from sqale_grpo.env.episode import Episode
from sqale_grpo.env.files import read_json_lines, whole_file

if TYPE_CHECKING:
    from sqale_grpo.rollout.play import PlayedEpisode

_CALL = pa.struct(
    {
        "tool": pa.string(),
        "args": pa.string(),  # JSON
        "result": pa.string(),
        "error": pa.string(),
    }
)
_TURN = pa.struct({"completion": pa.string(), "calls": pa.list_(_CALL), "observation": pa.string()})
SCHEMA = pa.schema(
    {
        "update": pa.int32(),
        "question_id": pa.string(),
        "candidate": pa.int32(),
        "db_id": pa.string(),
        "corpus": pa.string(),
        "difficulty": pa.string(),
        "bucket": pa.string(),
        "question": pa.string(),
        "gold_sql": pa.string(),
        "gold_tables": pa.list_(pa.string()),
        "tables": pa.list_(pa.string()),
        "gated": pa.bool_(),
        "turns": pa.list_(_TURN),
        "opened_tables": pa.list_(pa.string()),
        "sql": pa.string(),
        "ended_by": pa.string(),
        "tier": pa.string(),
        "reward": pa.float64(),
        "f1": pa.float64(),
        "join_share": pa.float64(),
        "agrees": pa.bool_(),
        "error": pa.string(),
        "copy": pa.int32(),  # the counter-database on which an answer fell that is right on the episode's own
        "message": pa.string(),  # what differs from the gold result first, there or here, or the error's text
        "advantage": pa.float64(),
        "prompt_tokens": pa.int32(),
        "completion_tokens": pa.int32(),
        "written_tokens": pa.int32(),
    }
)


def episode_record(
    played: "PlayedEpisode", update: int, bucket: str | None = None, advantage: float | None = None
) -> dict[str, Any]:
    """One episode as a row, with rounds and calls, of which metrics are made; held-out ones have no advantage."""
    question, outcome = played.group.question, played.outcome
    return {
        "update": update,
        "question_id": question.question_id,
        "candidate": played.job.candidate,
        "db_id": question.db_id,
        "corpus": question.corpus,
        "difficulty": question.difficulty,
        "bucket": bucket,
        "question": question.text,
        "gold_sql": question.gold_sql,
        "gold_tables": list(question.gold_tables),
        "tables": list(played.group.tables),
        "gated": played.job.gated,
        "turns": turns_record(played.episode),
        "opened_tables": sorted(played.episode.opened_tables),
        "sql": played.answer,
        "tier": outcome.tier,
        "reward": None if outcome.tier == "void" else outcome.reward,
        "f1": outcome.f1,
        "join_share": outcome.join_share,
        "agrees": outcome.agrees,
        "error": outcome.message if outcome.tier == "void" else outcome.error,
        "copy": outcome.copy,
        "message": outcome.message,
        "advantage": advantage,
        "prompt_tokens": len(played.tokens.prompt_ids),
        **played.facts,
    }


def turns_record(episode: Episode) -> list[dict[str, Any]]:
    """The episode's turns as plain values of the file's ``turns`` column."""
    return [
        {
            "completion": plain(turn.completion),
            "calls": [
                {
                    "tool": plain(call.tool),
                    "args": json.dumps(call.args),
                    "result": plain(call.result),
                    "error": plain(call.error),
                }
                for call in turn.calls
            ],
            "observation": plain(turn.observation),
        }
        for turn in episode.turns
    ]


def plain(value: Any) -> Any:
    """Text that parquet can hold: bytes that are not UTF-8 travel as surrogates and are written as ``\\udcXX``."""
    if isinstance(value, list):
        return [plain(item) for item in value]
    return value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value


METRICS = "metrics.jsonl"  # within the run's folder, one JSON object per update


def read_metrics(path: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """The updates' metrics in rising order, and a note on each line that holds none: most likely, a kill cut it off.

    An update that comes twice counts as it was written last.
    """
    lines, damaged = read_json_lines(path, _has_update)
    by_update = {line["update"]: line for line in lines}
    notes = [f"line {number} of {path.name} is cut off or damaged and was left out" for number in damaged]
    return [by_update[update] for update in sorted(by_update)], notes


def _has_update(line: dict[str, Any]) -> bool:
    return type(line.get("update")) is int and line["update"] >= 0


def write_episodes(folder: Path, update: int, records: Iterable[dict[str, Any]]) -> Path:
    """Write the records of one update as ``folder/NNNNNN.parquet`` and return the path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{update:06d}.parquet"
    rows = [{name: plain(value) for name, value in record.items()} for record in records]
    with whole_file(path) as file:
        pq.write_table(pa.Table.from_pylist(rows, SCHEMA), file)
    return path


def drop_episodes(folder: Path, update: int) -> None:
    """Remove the files of ``update`` and later ones, which a resumed run is about to play again."""
    for file in folder.glob("*.parquet"):
        if file.stem.isdigit() and int(file.stem) >= update:
            file.unlink()


def read_episodes(folder: Path) -> pa.Table:
    """All episodes of a run folder's ``episodes``, in the order of their updates."""
    files = sorted(folder.glob("*.parquet"))
    if not files:
        raise FileNotFoundError(
            f"no episodes in {folder}: the run has not finished its first update, or this is no run folder"
        )
    return pa.concat_tables(pq.read_table(file, schema=SCHEMA) for file in files)
