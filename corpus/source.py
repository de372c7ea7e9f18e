"""What a loader hands to ``prepare``: a stream of questions, a stream of databases, and what they depend on."""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from corpus.errors import CorpusError
from corpus.question import RawQuestion

DatabaseRecipe = Path | dict[str, Any]  # a SQLite file to link, or a schema row of SQaLe to build


@dataclass(frozen=True)
class Source:
    """One split of a corpus, opened but not read.

    ``questions()`` yields every record in the order of the source. ``databases(wanted)`` yields
    (db_id, recipe) for the wanted ids; an id that the source lacks is left out or raises CorpusError.
    ``files`` are small enough in number to be looked at on every start: the prepared folder remembers them.
    ``identity`` says what no file says, such as the names of Hub data sets.
    """

    questions: Callable[[], Iterator[RawQuestion]]
    databases: Callable[[Collection[str]], Iterator[tuple[str, DatabaseRecipe]]]
    files: tuple[Path, ...]
    identity: str = ""


def existing_folder(source: str | Path | None, corpus: str) -> Path:
    """The source as a folder. Raises CorpusError where there is none."""
    if source is None or not str(source):
        raise CorpusError(f"the corpus {corpus!r} needs a source: give the folder that holds it (--source PATH)")
    folder = Path(source).expanduser()
    if not folder.is_dir():
        raise CorpusError(
            f"no folder {folder}: it should hold the corpus {corpus!r}, see docs/corpora.md for its layout"
        )
    return folder


def text_of(record: dict[str, Any], key: str, where: str, *, default: str | None = None) -> str:
    """The text under ``key``; null is empty. Raises CorpusError for a missing key without default, or another type."""
    if key not in record:
        if default is not None:
            return default
        raise CorpusError(f"{where}: no key {key!r} (found: {', '.join(sorted(record)) or 'none'})")
    value = record[key]
    if value is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise CorpusError(f"{where}: {key!r} should be text, not {type(value).__name__}")
    return str(value)
