"""BIRD, as its archives unpack: ``train/``, ``dev_20240627/`` and ``MINIDEV/``, each a JSON array and databases.

The train file has neither ``question_id`` nor ``difficulty``: its questions are numbered by their place. The filtered
train set has the former. Mini-dev is a split of its own: 500 of dev's questions, some with another gold query.
"""

from collections.abc import Iterator
from pathlib import Path

from sqale_grpo.corpus.files import Places, candidates, located
from sqale_grpo.corpus.json_stream import read_json_array
from sqale_grpo.corpus.question import CorpusError, RawQuestion, Source, existing_folder, text_of

# The file of a split, and the folder of its databases beside it. Dev is published anew under the name of its date.
FILES = {
    "train": ("train.json", "train_databases"),
    "dev": ("dev.json", "dev_databases"),
    "mini_dev": ("mini_dev_sqlite.json", "dev_databases"),
}
FOLDERS = {"train": "train*", "dev": "dev*", "mini_dev": "[Mm][Ii][Nn][Ii]*"}
DATED_DEV = "dev_20[0-9][0-9][0-9][0-9][0-9][0-9].json"


def open_source(source: str | Path | None, split: str) -> Source:
    """``source`` holds ``train/train.json`` or ``dev*/dev.json``, or is itself that folder. Raises CorpusError."""
    folder = existing_folder(source, "bird")
    if split not in FILES:
        raise CorpusError(f"BIRD has no split {split!r}: choose one of {', '.join(FILES)}")
    found = question_files(folder, split)
    name, kept = FILES[split]
    if not found:
        other = next((other for other in FILES if question_files(folder, other)), None)
        hint = f"it holds the split {other}: add --split {other}" if other else f"unpack BIRD's {split} archive there"
        raise CorpusError(f"no {name} in {folder} or in its folder {FOLDERS[split]}/: {hint}")
    if len(found) > 1:
        names = ", ".join(map(str, found))
        raise CorpusError(f"several {name} in {folder}: {names}; give the folder of one of them as the source")
    path = found[0]
    databases = path.parent / kept
    places = (databases, databases / databases.name)  # some archives nest the folder in itself
    return Source(
        questions=lambda: _questions(path, split),
        databases=lambda wanted: located(wanted, places),
        files=(path, *candidates(places)),
        place=Places(places).wanted_at,
    )


def question_files(folder: Path, split: str) -> list[Path]:
    """The files of a split in ``folder`` or in the split's folder below it, sorted."""
    names = (FILES[split][0], *([DATED_DEV] if split == "dev" else []))
    return sorted(
        path for name in names for pattern in (name, f"{FOLDERS[split]}/{name}") for path in folder.glob(pattern)
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
