"""What an answer holds as JSON: one schema for ``--json``, for servers and for the documentation.

``docs/answer.md`` is its table; a test holds the page and real answers to it.
"""

from typing import Any

NULL = "null"
CELL = {"type": ["string", "number", NULL], "description": "a blob is its SQL literal, x'00FF'; infinity is \"inf\""}
ROWS = {"type": "array", "items": {"type": "array", "items": CELL}}
COLUMNS = {"type": "array", "items": {"type": "string"}}


def _object(fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}


CALL = _object(
    {
        "tool": {"type": "string", "description": 'the tool; "" where the call could not be read'},
        "args": {"type": "object"},
        "result": {"type": "string", "description": "what the policy was told"},
        "error": {"type": ["string", NULL], "description": "class of the failure"},
    }
)
TURN = _object(
    {
        "completion": {"type": "string", "description": "what the policy wrote"},
        "calls": {"type": "array", "items": CALL},
        "observation": {"type": ["string", NULL], "description": "what it was answered; null: the episode ended"},
        "moment": {"type": ["string", NULL], "description": "when its calls began, UTC"},
    }
)
VOTE = _object(
    {
        "count": {"type": "integer", "description": "candidates that gave this result"},
        "share": {"type": "number"},
        "sql": {"type": "string", "description": "of the first of them"},
        "columns": COLUMNS,
        "rows": ROWS,
        "truncated": {"type": "boolean"},
    }
)
ANSWER: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "An answer of the agent",
    **_object(
        {
            "question": {"type": "string", "description": "as it was asked"},
            "database": {"type": "string", "description": "the file's path"},
            "sql": {"type": ["string", NULL], "description": "the answer; null: none, or not sure"},
            "moment": {"type": "string", "description": "when its rows were read, UTC"},
            "columns": {**COLUMNS, "description": "names, in the order of the cells"},
            "rows": {**ROWS, "description": "the first rows of its result, at most `--rows`"},
            "truncated": {"type": "boolean", "description": "more rows exist"},
            "error": {"type": ["string", NULL], "description": "why the answer does not run"},
            "candidates": {"type": "integer", "minimum": 1, "description": "episodes that were played"},
            "agreement": {"type": ["number", NULL], "description": "share that gave the most frequent result"},
            "threshold": {"type": ["number", NULL], "description": "share that must agree"},
            "is_sure": {"type": ["boolean", NULL], "description": "whether it does; null of one candidate"},
            "votes": {"type": "array", "items": VOTE, "description": "the two most frequent results"},
            "difference": {"type": ["string", NULL], "description": "what tells these apart"},
            "ended_by": {"type": "string", "description": "how the episode of the answer ended"},
            "turns": {"type": "integer", "description": "its number of turns"},
            "calls": {"type": "integer", "description": "its number of calls"},
            "seconds": {"type": "number", "description": "of all questions that were played together"},
            "trace": {"type": "array", "items": TURN, "description": "its turns"},
        }
    ),
}


def schema_markdown() -> str:
    """The schema as the table of ``docs/answer.md``."""
    parts = {"": ANSWER, "votes[].": VOTE, "trace[].": TURN, "trace[].calls[].": CALL}
    lines = ["| name | type | what it is |", "|---|---|---|"]
    for prefix, part in parts.items():
        for name, field in part["properties"].items():
            kinds = field["type"] if isinstance(field["type"], list) else [field["type"]]
            lines.append(f"| `{prefix}{name}` | {' or '.join(kinds)} | {field.get('description', '')} |")
    return "\n".join(lines)
