"""Rows of an evaluation for tests: every column that the metrics read."""

from typing import Any


def row(question_id: str, tier: str, **changes: Any) -> dict[str, Any]:
    """One episode's row; by default four rounds, five calls and one literal of two seen."""
    return {
        "question_id": question_id,
        "candidate": 0,
        "corpus": "demo",
        "difficulty": "simple",
        "tier": tier,
        "unstable": "",
        "reward": 3.0 if tier == "equivalent" else 1.0,
        "official": None,
        "robust": None,
        "copy": None,
        "gold_empty": False,
        "result_class": None,
        "recall": True,
        "literals": 2,
        "literals_seen": 1,
        "stated": 2,
        "stated_seen": 1,
        "unstated": 0,
        "unstated_seen": 0,
        "literals_used": 1,
        "unstated_used": 0,
        "rounds": 4,
        "calls": 5,
        "distinct_calls": 4,
        "ended_by": "submit_sql",
        "prompt_tokens": 100,
        "completion_tokens": 400,
        "written_tokens": 90,
        "processed_tokens": 500,
        "reprocessed_tokens": 1400,
        **changes,
    }
