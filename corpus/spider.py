"""Spider, as its archive unpacks: ``train_spider.json`` and ``train_others.json``, ``dev.json``, ``test.json``.

The databases lie in ``database/``, those of the test split in ``test_database/``. Questions have no ids, so they are
numbered by their place in their file; Spider shows no evidence.
"""

from collections.abc import Iterator
from pathlib import Path

from sqale_grpo.corpus.files import Places, candidates, located
from sqale_grpo.corpus.json_stream import read_json_array
from sqale_grpo.corpus.question import CorpusError, RawQuestion, Source, existing_folder, text_of

# The files of a split with the name that its questions bear; the first one must be there.
FILES = {
    "train": {"train_spider.json": "train", "train_others.json": "others"},
    "dev": {"dev.json": "dev"},
    "test": {"test.json": "test"},
}
DATABASES = {"train": ("database",), "dev": ("database",), "test": ("test_database", "database")}
NESTED = ("", "spider_data", "spider")  # the archive's own folder


def open_source(source: str | Path | None, split: str) -> Source:
    """``source`` holds the files, or the archive's folder ``spider_data/`` that does. Raises CorpusError."""
    folder = existing_folder(source, "spider")
    if split not in FILES:
        raise CorpusError(f"Spider has no split {split!r}: choose one of {', '.join(FILES)}")
    first = next(iter(FILES[split]))
    place = next((folder / nested for nested in NESTED if (folder / nested / first).is_file()), None)
    if place is None:
        raise CorpusError(f"no {first} in {folder} or in its folder spider_data/: unpack Spider's archive there")
    files = {place / name: label for name, label in FILES[split].items() if (place / name).is_file()}
    places = tuple(place / name for name in DATABASES[split])
    return Source(
        questions=lambda: _questions(files),
        databases=lambda wanted: located(wanted, places),
        files=(*files, *candidates(places)),
        place=Places(places[:1]).wanted_at,
    )


def _questions(files: dict[Path, str]) -> Iterator[RawQuestion]:
    for path, label in files.items():
        for number, record in enumerate(read_json_array(path)):
            where = f"{path}, record {number}"
            text = text_of(record, "question", where).strip()
            yield RawQuestion(
                question_id=f"spider_{label}_{number}",
                db_id=text_of(record, "db_id", where),
                phrasings=(text,) if text else (),
                gold_sql=text_of(record, "query", where),
            )
