"""A question, as a loader reads it and as training meets it."""

from dataclasses import dataclass


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
    """A prepared question: its gold SQL executes and reads ``gold_tables`` (base tables, as declared)."""

    question_id: str
    db_id: str
    text: str
    evidence: str
    gold_sql: str
    gold_tables: tuple[str, ...]
    difficulty: str
    corpus: str
