"""A user's own questions: a folder of SQLite files and ``questions.jsonl``.

Keys of a line: ``db_id``, ``question``, ``sql``; optional ``question_id`` and ``evidence``. A database lies at
``databases/<db_id>/<db_id>.sqlite``, ``databases/<db_id>.sqlite`` or ``<db_id>.sqlite``, or ends in
``.sqlite3`` or ``.db``.
"""

from collections.abc import Collection, Iterator
from pathlib import Path

from sqale_grpo.corpus.files import Places, candidates, located
from sqale_grpo.corpus.json_stream import read_json_lines
from sqale_grpo.corpus.question import CorpusError, RawQuestion, Source, existing_folder, text_of


def open_source(source: str | Path | None, split: str) -> Source:
    """``questions.jsonl`` for the train split, ``questions_<split>.jsonl`` for another. Raises CorpusError."""
    path = questions_file(source, split)
    places = _places(path.parent)
    return Source(
        questions=lambda: questions(path),
        databases=lambda wanted: located(wanted, places),
        files=(path, *candidates(places)),
        place=lambda db_id: Places(places).wanted_at(db_id, flat=True),
    )


def questions_file(source: str | Path | None, split: str) -> Path:
    """The file of a split's questions. Raises CorpusError where it or its folder is not there."""
    folder = existing_folder(source, "jsonl")
    path = folder / ("questions.jsonl" if split == "train" else f"questions_{split}.jsonl")
    if not path.is_file():
        raise CorpusError(f"no file {path}: it should hold the {split} questions, one JSON object a line")
    return path


def _places(folder: Path) -> tuple[Path, Path]:
    return folder / "databases", folder


def found_databases(folder: Path, db_ids: Collection[str]) -> dict[str, Path]:
    """The SQLite files of those databases that have one."""
    return dict(located(db_ids, _places(folder)))


def questions(path: Path) -> Iterator[RawQuestion]:
    """The questions of a file, one a line that is not blank. Raises CorpusError with the line."""
    for number, record in read_json_lines(path):
        where = f"{path}, line {number}"
        db_id = text_of(record, "db_id", where)
        if not db_id:
            raise CorpusError(f"{where}: 'db_id' is empty, it should name a database")
        text = text_of(record, "question", where).strip()
        yield RawQuestion(
            question_id=text_of(record, "question_id", where, default="") or f"line_{number}",
            db_id=db_id,
            phrasings=(text,) if text else (),
            gold_sql=text_of(record, "sql", where),
            evidence=text_of(record, "evidence", where, default="").strip(),
            difficulty=text_of(record, "difficulty", where, default=""),
        )
