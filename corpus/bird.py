"""BIRD, as its two archives unpack: ``train/`` and ``dev_20240627/``, each with a JSON array and its databases.

The train file has neither ``question_id`` nor ``difficulty``: its questions are numbered by their place.
"""

from collections.abc import Iterator
from pathlib import Path

from sqale_grpo.corpus.files import candidates, located
from sqale_grpo.corpus.json_stream import read_json_array
from sqale_grpo.corpus.question import CorpusError, RawQuestion, Source, existing_folder, text_of

SPLITS = ("train", "dev")


def open_source(source: str | Path | None, split: str) -> Source:
    """``source`` holds ``train/train.json`` or ``dev*/dev.json``, or is itself that folder. Raises CorpusError."""
    folder = existing_folder(source, "bird")
    if split not in SPLITS:
        raise CorpusError(f"BIRD has no split {split!r}: choose one of {', '.join(SPLITS)}")
    found = sorted(path for pattern in (f"{split}.json", f"{split}*/{split}.json") for path in folder.glob(pattern))
    if not found:
        raise CorpusError(
            f"no {split}.json in {folder} or in its folder {split}*/: unpack BIRD's {split} archive there"
        )
    if len(found) > 1:
        names = ", ".join(map(str, found))
        raise CorpusError(f"several {split}.json in {folder}: {names}; give the folder of one of them as the source")
    path = found[0]
    databases = path.parent / f"{split}_databases"
    places = (databases, databases / databases.name)  # some archives nest the folder in itself
    return Source(
        questions=lambda: _questions(path, split),
        databases=lambda wanted: located(wanted, places),
        files=(path, *candidates(places)),
    )


def _questions(path: Path, split: str) -> Iterator[RawQuestion]:
    for number, record in enumerate(read_json_array(path)):
        where = f"{path}, record {number}"
        text = text_of(record, "question", where).strip()
        yield RawQuestion(
            question_id=f"bird_{split}_{text_of(record, 'question_id', where, default='') or number}",
            db_id=text_of(record, "db_id", where),
            phrasings=(text,) if text else (),
            gold_sql=text_of(record, "SQL", where),
            evidence=text_of(record, "evidence", where, default="").strip(),
            difficulty=text_of(record, "difficulty", where, default=""),
        )
