"""SynSQL-2.5M: one JSON array of gigabytes, ``data.json``, read as a stream, and ``databases/``. Train split only."""

from collections.abc import Iterator
from pathlib import Path

from sqale_grpo.corpus.files import Places, candidates, located
from sqale_grpo.corpus.json_stream import read_json_array
from sqale_grpo.corpus.question import CorpusError, RawQuestion, Source, existing_folder, text_of


def open_source(source: str | Path | None, split: str) -> Source:
    """``source`` holds ``data.json`` and ``databases/<db_id>/<db_id>.sqlite``. Raises CorpusError."""
    folder = existing_folder(source, "synsql")
    if split != "train":
        raise CorpusError(f"SynSQL has no split {split!r}: it is published as train alone")
    path = folder / "data.json"
    if not path.is_file():
        raise CorpusError(f"no file {path}: unpack SynSQL-2.5M's data.json there")
    places = (folder / "databases",)
    return Source(
        questions=lambda: _questions(path),
        databases=lambda wanted: located(wanted, places),
        files=(path, *candidates(places)),
        place=Places(places).wanted_at,
    )


def _questions(path: Path) -> Iterator[RawQuestion]:
    """The long ``cot`` of a record is left behind here; ``external_knowledge`` is its evidence."""
    for number, record in enumerate(read_json_array(path)):
        where = f"{path}, record {number}"
        text = text_of(record, "question", where).strip()
        yield RawQuestion(
            question_id=f"synsql_{number}",
            db_id=text_of(record, "db_id", where),
            phrasings=(text,) if text else (),
            gold_sql=text_of(record, "sql", where),
            evidence=text_of(record, "external_knowledge", where, default="").strip(),
            difficulty=text_of(record, "sql_complexity", where, default=""),
        )
