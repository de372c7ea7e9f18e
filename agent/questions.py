"""Files of questions for the agent: one a line, plain or as JSON."""

import json
from pathlib import Path

from sqale_grpo.agent.agent import AgentQuestion
from sqale_grpo.agent.backends import AgentError


def read_questions(file: Path, database: Path | None, evidence: str) -> list[AgentQuestion]:
    """The questions of a file: lines of text, or of JSON objects ``{"question": ..., "db": ..., "evidence": ...}``.

    ``database`` and ``evidence`` stand in where a line names none; a ``db`` that is no absolute path is sought beside
    the file. Raises AgentError that names file and line.
    """
    try:
        # Not splitlines: a JSON text may hold other separators than the line feed, such as U+2028.
        lines = file.read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeError) as error:
        raise AgentError(f"the questions in {file} cannot be read: {error}") from error
    found = [
        _question(line, f"{file}, line {number}", file.parent, database, evidence)
        for number, line in enumerate(lines, 1)
        if line.strip()
    ]
    if not found:
        raise AgentError(f"{file} holds no question: write one a line")
    return found


def _question(line: str, place: str, folder: Path, database: Path | None, evidence: str) -> AgentQuestion:
    if not line.lstrip().startswith("{"):
        return AgentQuestion(line.strip(), _needed(database, place), evidence)
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise AgentError(f"{place} is not valid JSON: {error}") from error
    text, own = entry.get("question"), entry.get("db")
    if not isinstance(text, str) or not text.strip():
        raise AgentError(f'{place} lacks the key "question"')
    if own is not None and not isinstance(own, str):
        raise AgentError(f'{place}: "db" must be the path of an SQLite file')
    hint = entry.get("evidence")
    if hint is not None and not isinstance(hint, str):
        raise AgentError(f'{place}: "evidence" must be a text')
    chosen = folder / own if own else _needed(database, place)
    return AgentQuestion(text, chosen, hint or evidence)


def _needed(database: Path | None, place: str) -> Path:
    if database is None:
        raise AgentError(f'{place} names no database: give --db, or "db" in the line')
    return database
