"""Corpora of questions over SQLite databases: loaders, and the prepared form that training reads."""

from corpus.errors import CorpusError
from corpus.gold_tables import UnparsedSql, gold_tables
from corpus.preparation import prepare
from corpus.prepared import PreparedCorpus, open_prepared
from corpus.question import Question

__all__ = ["CorpusError", "PreparedCorpus", "Question", "UnparsedSql", "gold_tables", "open_prepared", "prepare"]
