"""The initial policy of a run: a folder, a name on the Hub, or the demo policy, built on demand."""

import dataclasses
from pathlib import Path

from rich.console import Console

from sqale_grpo.rollout.policy_path import DEMO, resolve_policy
from sqale_grpo.settings.corpora import open_corpus
from sqale_grpo.settings.keys import Config, TrainCorpusConfig

POLICY_CACHE = "demo-policy"  # beside the prepared corpora


def policy_path(config: Config, console: Console) -> str:
    """Folder or Hub name of the initial policy; builds the demo policy where ``model.path`` is ``demo``."""
    if config.model.path != DEMO:
        return str(resolve_policy(config.model.path))
    from sqale_grpo.demo.build import build_policy  # late: it loads torch

    train_split = open_corpus(demo_corpus(config), "train")
    return str(build_policy(config, train_split.directory, Path(config.corpus.prepared) / POLICY_CACHE, console.print))


def demo_corpus(config: Config) -> Config:
    """The same configuration over the plain demo corpus, from which the demo policy is made whatever trains on."""
    return dataclasses.replace(config, corpus=TrainCorpusConfig(name=DEMO, prepared=config.corpus.prepared))
