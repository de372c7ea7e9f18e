"""Corpora of questions over SQLite databases: loaders, and the prepared form that training reads."""

from sqale_grpo.corpus.gold_tables import UnparsedSql, gold_tables
from sqale_grpo.corpus.preparation import prepare
from sqale_grpo.corpus.prepared import PreparedCorpus, open_prepared
from sqale_grpo.corpus.question import CorpusError, Question

__all__ = ["CorpusError", "PreparedCorpus", "Question", "UnparsedSql", "gold_tables", "open_prepared", "prepare"]
