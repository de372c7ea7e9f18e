"""Questions as people keep them: CSV, JSON lines, or the JSON arrays of Spider (``query``) and BIRD (``SQL``)."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqale_grpo.corpus.json_stream import read_json_array, read_json_lines
from sqale_grpo.corpus.own.csv_file import CsvFile
from sqale_grpo.corpus.question import CorpusError, text_of
from sqale_grpo.env.text import fold_name

QUESTION = ("question", "text", "utterance")
SQL = ("sql", "query", "gold_sql", "gold")
ID = ("question_id", "id")
DATABASE = ("db_id", "database")


@dataclass(frozen=True)
class AskedQuestion:
    """A question of a file. ``place``: file and line, or record, as a person finds it."""

    place: str
    db_id: str
    question: str
    sql: str
    evidence: str = ""
    difficulty: str = ""
    question_id: str = ""

    def record(self, sql: str, question_id: str) -> dict[str, str]:
        """A line of questions.jsonl."""
        known = {"question_id": question_id, "db_id": self.db_id, "question": self.question, "sql": sql}
        more = {"evidence": self.evidence, "difficulty": self.difficulty}
        return known | {name: text for name, text in more.items() if text}


def read_questions(path: Path, databases: tuple[str, ...], encoding: str | None = None) -> list[AskedQuestion]:
    """All questions of a file over ``databases``.

    Raises CorpusError, with the line or the record, for a question without text, without SQL, or over none of them.
    """
    if not path.is_file():
        raise CorpusError(f"there is no file {path}: name a CSV, JSON or JSON-lines file of questions and their SQL")
    found = [_question(where, record, databases) for where, record in _records(path, encoding)]
    if not found:
        raise CorpusError(f"{path} holds no question: give each a line with a question and its SQL")
    return found


def _records(path: Path, encoding: str | None) -> Iterator[tuple[str, dict[str, Any]]]:
    """(place, record)."""
    if path.suffix.lower() in (".csv", ".tsv"):
        file = CsvFile(path, encoding)
        for line, texts in file.rows():
            yield f"{path}, line {line}", dict(zip(file.heading, texts, strict=True))
    elif _is_array(path):
        for number, record in enumerate(read_json_array(path)):
            yield f"{path}, record {number}", record
    else:
        for line, record in read_json_lines(path):
            yield f"{path}, line {line}", record


def _is_array(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(64).lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"[")


def _question(where: str, record: dict[str, Any], databases: tuple[str, ...]) -> AskedQuestion:
    names = {fold_name(name): name for name in reversed(record)}

    def text(keys: tuple[str, ...], needed: str = "") -> str:
        name = next((names[key] for key in keys if key in names), None)
        if name is None and needed:
            found = ", ".join(record) or "none"
            raise CorpusError(f"{where}: {needed}: there is no {' or '.join(map(repr, keys))} (found: {found})")
        value = "" if name is None else text_of(record, name, where).strip()
        if not value and needed:
            raise CorpusError(f"{where}: {needed}: {name!r} is empty; fill it, or delete the {_unit(where)}")
        return value

    db_id = text(DATABASE)
    if not db_id and len(databases) > 1:
        raise CorpusError(f"{where}: no database: add 'db_id', one of {', '.join(databases)}")
    db_id = db_id or databases[0]
    known = next((name for name in databases if fold_name(name) == fold_name(db_id)), None)
    if known is None:
        raise CorpusError(
            f"{where}: its database {db_id!r} is none of the sources, which are {', '.join(databases)}; add it as a "
            f"source, {db_id}=SOURCE, or delete the {_unit(where)}"
        )
    return AskedQuestion(
        where,
        known,
        text(QUESTION, "a question without text"),
        text(SQL, "a question without SQL").rstrip(";").strip(),
        text(("evidence", "external_knowledge", "hint")),
        text(("difficulty",)),
        text(ID),
    )


def _unit(where: str) -> str:
    return "line" if ", line " in where else "record"


def json_line(record: dict[str, Any]) -> str:
    """One line of JSON."""
    return json.dumps(record, ensure_ascii=False) + "\n"
