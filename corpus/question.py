"""A question, as a loader reads it and as training meets it.

The one error of this package: input that a person has to put right.


What a loader hands to ``prepare``: a stream of questions, a stream of databases, and what they depend on.
"""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqale_grpo.env.errors import UserError


class CorpusError(UserError):
    """Bad input. The message names the thing, the place and the fix in one sentence."""


@dataclass(frozen=True)
class RawQuestion:
    """One record of a corpus, before anything was executed.

    ``phrasings`` holds the usable wordings only, the most explicit one first. A loader that already knows
    that the record cannot be used says why in ``dropped`` (a reason of ``corpus.reasons``).
    """

    question_id: str
    db_id: str
    phrasings: tuple[str, ...]
    gold_sql: str
    evidence: str = ""
    difficulty: str = ""
    dropped: str = ""


@dataclass(frozen=True)
class Question:
    """A prepared question: its gold SQL executes and reads ``gold_tables`` (base tables, as declared).

    ``copies``: seeds of its counter-databases.
    """

    question_id: str
    db_id: str
    text: str
    evidence: str
    gold_sql: str
    gold_tables: tuple[str, ...]
    difficulty: str
    corpus: str
    copies: tuple[int, ...] = ()


EVIDENCE = ", evidence: "  # between question and evidence in SQaLe's wording evidence_supported


def split_evidence(text: str) -> tuple[str, str] | None:
    """Question and evidence of a wording that carries both, as SQaLe writes it; None for any other wording."""
    question, _, evidence = text.partition(EVIDENCE)
    return (question.strip(), evidence.strip()) if question.strip() and evidence.strip() else None


DatabaseRecipe = Path | dict[str, Any]  # a SQLite file to link, or a schema row of SQaLe to build


@dataclass(frozen=True)
class Source:
    """One split of a corpus, opened but not read.

    ``questions()`` yields every record in the order of the source. ``databases(wanted)`` yields
    (db_id, recipe) for the wanted ids; an id that the source lacks is left out, and its questions are dropped.
    ``files`` are small enough in number to be looked at on every start: the prepared folder remembers them.
    ``identity`` says what no file says, such as the names of Hub data sets. ``place(db_id)`` says in words where the
    database of an id should lie.
    """

    questions: Callable[[], Iterator[RawQuestion]]
    databases: Callable[[Collection[str]], Iterator[tuple[str, DatabaseRecipe]]]
    files: tuple[Path, ...]
    identity: str = ""
    place: Callable[[str], str] = lambda db_id: "the source"


def existing_folder(source: str | Path | None, corpus: str) -> Path:
    """The source as a folder. Raises CorpusError where there is none."""
    if source is None or not str(source):
        raise CorpusError(f"the corpus {corpus!r} needs a source: give the folder that holds it (--source PATH)")
    folder = Path(source).expanduser()
    if not folder.is_dir():
        layout = "see docs/corpora.md for its layout"
        if corpus == "jsonl":
            made = f"my_data {folder}" if folder.exists() else f"{folder} SOURCE"
            layout = f"make a folder of your own data with `sqale-grpo corpus new {made}`"
        raise CorpusError(f"no folder {folder}: it should hold the corpus {corpus!r}; {layout}")
    return folder


def text_of(record: dict[str, Any], key: str, where: str, *, default: str | None = None) -> str:
    """The text under ``key``; null is empty. Raises CorpusError for a missing key without default, or another type."""
    if key not in record:
        if default is not None:
            return default
        raise CorpusError(f"{where}: no key {key!r} (found: {', '.join(sorted(record)) or 'none'}): add it")
    value = record[key]
    if value is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise CorpusError(f"{where}: {key!r} should be text, not {type(value).__name__}")
    return str(value)
