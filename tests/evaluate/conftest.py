"""The demo's test split, and a tiny random policy on disk."""

from pathlib import Path

import pytest
import torch

from sqale_grpo.corpus import PreparedCorpus, prepare
from sqale_grpo.demo.model import tiny_model, train_tokenizer
from sqale_grpo.settings.demo_policy import DemoPolicyConfig


@pytest.fixture(scope="session")
def prepared_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the evaluations of these tests find their corpora."""
    return tmp_path_factory.mktemp("prepared")


@pytest.fixture(scope="session")
def demo_split(prepared_folder: Path) -> PreparedCorpus:
    """Prepared where a configuration with this ``corpus.prepared`` looks for it."""
    return prepare("demo", None, prepared_folder / "demo-test", split="test", progress=False)


@pytest.fixture(scope="session")
def tiny_policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in Hugging Face's layout: both layer types, random weights, in float32."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("policy")
    text = 'system user assistant SELECT count(*) FROM "shops" WHERE {"tool": "run_query", "args": {"sql": '
    tokenizer = train_tokenizer([text] * 4, 420)
    tiny_model(DemoPolicyConfig(hidden_size=32, head_dim=32, linear_head_dim=16), tokenizer, seed=3).save_pretrained(
        folder
    )
    tokenizer.save_pretrained(folder)
    return folder
