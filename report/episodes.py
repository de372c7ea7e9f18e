"""The chosen groups of episodes as the page holds them: an index to filter by, and a packed text for each group.

A group's text is JSON, compressed with gzip and written in base64, so whatever it holds cannot end the script element
that it lies in. The page unpacks a group when it is opened.

Which groups of episodes the page holds when it cannot hold all: spread over updates and outcomes, by a seed.
"""

import base64
import gzip
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pyarrow as pa

from sqale_grpo.env.chance import rng
from sqale_grpo.env.errors import first_line
from sqale_grpo.report.counts import TIERS, RecordedGroup, read_columns
from sqale_grpo.report.databases import Databases, GroupResults, Wanted, queries
from sqale_grpo.report.drawing import draw
from sqale_grpo.rollout.record import SCHEMA

BLOCKS = 12  # equal spans of the run


def choose_groups(groups: Sequence[RecordedGroup], limit: int, seed: int = 0) -> list[RecordedGroup]:
    """Up to ``limit`` whole groups, most wanted first.

    Every block of updates and every kind of outcome takes turns, so that rare outcomes and late updates are not lost
    among the many.
    """
    strata: dict[tuple[int, str], list[RecordedGroup]] = {}
    last = max((group.update for group in groups), default=0) + 1
    for group in groups:
        block = group.update * BLOCKS // last if group.update >= 0 else 0
        strata.setdefault((block, _outcome(group)), []).append(group)
    for key, members in strata.items():
        rng("report", seed, *key).shuffle(members)
    rounds = zip_longest(*(strata[key] for key in sorted(strata)))
    order = [group for members in rounds for group in members if group is not None]
    return order[:limit]


def _outcome(group: RecordedGroup) -> str:
    """The group's kind: its best tier, and whether its candidates differ in tier."""
    best = min(group.tiers, key=lambda tier: TIERS.index(tier) if tier in TIERS else len(TIERS))
    return best if len(set(group.tiers)) == 1 else f"{best}, mixed"


COLUMNS = SCHEMA.names  # those that training writes; an evaluation's files have more
TEXT = 20_000  # characters of one completion or tool result that are kept


@dataclass(frozen=True)
class PackedGroup:
    """``index``: what the page filters by; ``text``: the whole group, packed."""

    index: dict[str, Any]
    text: str


def read_groups(groups: Sequence[RecordedGroup]) -> tuple[dict[RecordedGroup, list[dict[str, Any]]], list[str]]:
    """The rows of each group, in the order of ``groups``, and a note on each file that cannot be read; each file once.

    A file may have gone since it was counted, or be damaged in a column that was not.
    """
    by_file: dict[Path, list[RecordedGroup]] = {}
    for group in groups:
        by_file.setdefault(group.file, []).append(group)
    rows: dict[RecordedGroup, list[dict[str, Any]]] = {}
    notes = []
    for path, members in by_file.items():
        try:
            table, _ = read_columns(path, COLUMNS)
        except (OSError, pa.ArrowException) as error:
            notes.append(f"the episodes of {path.name} cannot be read, only counted: {first_line(error)}")
            continue
        for group in members:
            rows[group] = table.slice(group.first, len(group.tiers)).to_pylist()
    return {group: rows[group] for group in groups if rows.get(group)}, notes


def pack_groups(
    groups: Mapping[RecordedGroup, list[dict[str, Any]]], databases: Databases, source: int, until: float
) -> list[PackedGroup]:
    """The groups with their results and drawings; ``source`` is the number of the run or evaluation on the page.

    ``until``: the moment, by ``time.monotonic``, from which no more databases are asked.
    """
    read = list(groups.values())
    wanted = [
        Wanted(
            rows[0]["db_id"] or "",
            tuple(rows[0]["tables"] or ()),
            queries([rows[0]["gold_sql"], *(r["sql"] for r in rows)]),
        )
        for rows in read
    ]
    found = databases.results(wanted, until)
    return [
        PackedGroup(_index(group, rows, source), pack(_whole(rows, results)))
        for (group, rows), results in zip(groups.items(), found, strict=True)
    ]


def pack(value: Any) -> str:
    """JSON, gzip, base64. The bytes depend on the value alone."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return base64.b64encode(gzip.compress(text.encode("ascii"), 6, mtime=0)).decode("ascii")


def finite(value: float | None) -> float | None:
    """A number that JSON can hold, in six digits; None for what is none."""
    if value is None or value != value or value in (float("inf"), float("-inf")):
        return None
    return float(f"{value:.6g}")


def _index(group: RecordedGroup, rows: list[dict[str, Any]], source: int) -> dict[str, Any]:
    first = rows[0]
    return {
        "source": source,
        "at": f"{group.file.stem}.{group.first}",
        "update": first["update"],
        "question_id": first["question_id"],
        "db": first["db_id"],
        "bucket": first["bucket"],
        "difficulty": first["difficulty"],
        "question": first["question"],
        "gold": first["gold_sql"],
        "episodes": [
            [
                row["candidate"],
                row["tier"],
                row["ended_by"],
                finite(row["reward"]),
                finite(row["advantage"]),
                bool(row["gated"]),
                row["sql"],
                len(row["turns"] or ()),
                sum(len(turn["calls"] or ()) for turn in row["turns"] or ()),
            ]
            for row in rows
        ],
    }


def _whole(rows: list[dict[str, Any]], results: GroupResults) -> dict[str, Any]:
    first = rows[0]
    tables, gold = first["tables"] or [], first["gold_tables"] or []
    drawing = draw(tables, results.keys, gold)
    return {
        "tables": tables,
        "gold_tables": gold,
        "places": drawing.positions,
        "edges": drawing.edges,
        "missing": results.missing,
        "results": results.by_sql,
        "episodes": [_episode(row) for row in rows],
    }


def _episode(row: dict[str, Any]) -> dict[str, Any]:
    return {
        "candidate": row["candidate"],
        "opened": row["opened_tables"] or [],
        "error": row["error"],
        "f1": finite(row["f1"]),
        "join_share": finite(row["join_share"]),
        "agrees": row["agrees"],
        "tokens": [row["prompt_tokens"], row["completion_tokens"], row["written_tokens"]],
        "turns": [_turn(turn) for turn in row["turns"] or ()],
    }


def _turn(turn: dict[str, Any]) -> dict[str, Any]:
    calls = turn["calls"] or ()
    return {
        "completion": _kept(turn["completion"]),
        "calls": [[call["tool"], call["args"], _kept(call["result"]), call["error"]] for call in calls],
        # What the calls' results do not show: what the policy was told beside them.
        "said": _kept(_beside(turn["observation"], [call["result"] for call in calls])),
    }


def _beside(observation: str | None, results: Iterable[str | None]) -> str:
    text = observation or ""
    for result in results:
        if result:
            text = text.replace(result, "…", 1)
    return text


def _kept(text: str | None) -> str:
    text = text or ""
    return text if len(text) <= TEXT else f"{text[:TEXT]}… ({len(text) - TEXT} more characters)"
