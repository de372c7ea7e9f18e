"""What one asked question ends with, as plain data: the answer's rows, the turns, and what several candidates gave."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sqale_grpo.agent.votes import Vote, Votes, what_differs
from sqale_grpo.env.episode import Turn
from sqale_grpo.env.limits import Limits, SqlError
from sqale_grpo.env.sandbox import Sandbox

SHOWN_VOTES = 2


def moment() -> str:
    """Now, in UTC."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def open_database(database: Path, limits: Limits) -> Sandbox:
    """A sandbox on a file, read-only.

    Raises FileNotFoundError or ValueError where it is no readable database, or one without a table.
    """
    sandbox = Sandbox(database, limits)
    # A file that is no database is to fail here, not at the first call; one of 0 bytes is a database to SQLite.
    if not sandbox.schema.tables and not sandbox.schema.views:
        sandbox.close()
        raise ValueError(f"{database} holds no table: there is nothing to ask")
    return sandbox


def answer_rows(sandbox: Sandbox, sql: str | None, most: int) -> dict[str, Any]:
    """Columns and up to ``most`` rows of the answer's result, or why there is none."""
    none: dict[str, Any] = {"columns": [], "rows": [], "truncated": False}
    if sql is None:
        return {**none, "error": None}
    try:
        result = sandbox.execute(sql, most)
    except SqlError as error:
        return {**none, "error": str(error)}
    return {"columns": list(result.columns), "rows": result.rows, "truncated": result.truncated, "error": None}


def voted(votes: Votes, candidates: int, sure: float, most: int) -> dict[str, Any]:
    """The part of a result that several candidates give; ``most``: rows of each of the frequent results."""
    if candidates == 1:
        none = {"agreement": None, "threshold": None, "is_sure": None}
        return {"candidates": 1, **none, "votes": [], "difference": None}
    first = votes.found[:SHOWN_VOTES]
    agreement = first[0].share if first else 0.0
    pair = [vote.result for vote in first]
    return {
        "candidates": candidates,
        "agreement": agreement,
        "threshold": sure,
        "is_sure": bool(first) and agreement >= sure,
        "votes": [vote_record(vote, most) for vote in first],
        "difference": what_differs(pair[0], pair[1], votes.ordered) if len(pair) == SHOWN_VOTES else None,
    }


def vote_record(vote: Vote, most: int) -> dict[str, Any]:
    """A frequent result as plain data, its first ``most`` rows."""
    result = vote.result
    return {
        "count": len(vote.candidates),
        "share": vote.share,
        "sql": vote.sql,
        "columns": list(result.columns),
        "rows": result.rows[:most],
        "truncated": result.truncated or len(result.rows) > most,
    }


def turn_record(turn: Turn) -> dict[str, Any]:
    """A turn as plain data."""
    calls = [{"tool": call.tool, "args": call.args, "result": call.result, "error": call.error} for call in turn.calls]
    return {"completion": turn.completion, "calls": calls, "observation": turn.observation}
