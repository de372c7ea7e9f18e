"""The prepared corpora of a run: prepared when they are not yet, opened otherwise."""

import hashlib
import json
from pathlib import Path

from corpus import PreparedCorpus, open_prepared, prepare
from corpus.prepared import MARKER
from train.config import Config
from train.config_check import ConfigError


def prepared_folder(config: Config, split: str) -> Path:
    """Where the split lies: one folder for each source, split and limit below ``corpus.prepared``."""
    corpus = config.corpus
    if corpus.source is None and corpus.limit is None:
        return Path(corpus.prepared) / f"{corpus.name}-{split}"
    inputs = json.dumps([corpus.source, corpus.limit])
    digest = hashlib.blake2b(inputs.encode(), digest_size=4).hexdigest()
    return Path(corpus.prepared) / f"{corpus.name}-{split}-{digest}"


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
        seconds = config.reward.gold_seconds
        return prepare(corpus.name, corpus.source, folder, split=split, limit=corpus.limit, seconds=seconds)
    if not (folder / MARKER).exists():
        raise ConfigError(
            f"{folder} holds no prepared corpus; set corpus.source=PATH, or run `{prepare_command(config, split)}`"
        )
    return open_prepared(folder)
