"""The prepared corpora of a run: prepared when they are not yet, opened otherwise."""

import hashlib
import json
from pathlib import Path

from corpus import PreparedCorpus, open_prepared, prepare
from corpus.preparation import EVALUATION_SECONDS
from corpus.prepared import MARKER
from train.config import Config
from train.config_check import ConfigError


def prepared_folder(config: Config, split: str) -> Path:
    """Where the split lies: one folder for each source, split, limit and time limit below ``corpus.prepared``."""
    corpus = config.corpus
    if corpus.source is None and corpus.limit is None:
        return Path(corpus.prepared) / f"{corpus.name}-{split}"
    inputs = json.dumps([corpus.source, corpus.limit, gold_limit(config, split) if corpus.source else None])
    digest = hashlib.blake2b(inputs.encode(), digest_size=4).hexdigest()
    return Path(corpus.prepared) / f"{corpus.name}-{split}-{digest}"


def gold_limit(config: Config, split: str) -> float:
    """Seconds that a gold query may take in preparation: what a policy's query has, which else could never match it.

    At scoring it may take longer (``reward.gold_seconds``), since a busy machine must not end a run.
    """
    if config.corpus.name == "demo":
        return EVALUATION_SECONDS  # any is right: its gold queries take microseconds
    return config.env.query_seconds if split == config.corpus.split else config.evaluate.query_seconds


def prepare_command(config: Config, split: str) -> str:
    """The command that prepares the split where ``open_corpus`` looks for it."""
    limit = "" if config.corpus.limit is None else f" --limit {config.corpus.limit}"
    folder = prepared_folder(config, split)
    return f"python -m corpus prepare --corpus {config.corpus.name} --source PATH --split {split}{limit} --out {folder}"


def open_corpus(config: Config, split: str) -> PreparedCorpus:
    """The prepared ``split`` of the run's corpus; prepares it from ``corpus.source`` where that is given.

    ConfigError where there is neither a prepared corpus nor a source.
    """
    folder = prepared_folder(config, split)
    corpus = config.corpus
    if corpus.name == "demo" or corpus.source is not None:
        return prepare(
            corpus.name,
            corpus.source,
            folder,
            split=split,
            limit=corpus.limit,
            seconds=gold_limit(config, split),
            max_rows=config.env.max_rows,
        )
    if not (folder / MARKER).exists():
        raise ConfigError(
            f"{folder} holds no prepared corpus; set corpus.source=PATH, or run `{prepare_command(config, split)}`"
        )
    return open_prepared(folder)
