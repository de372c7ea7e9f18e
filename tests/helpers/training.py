"""Fixtures of the tests that roll out or train: a tiny random policy, a small database, small runs."""

import os
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from transformers import PreTrainedTokenizerFast, Qwen3_5ForCausalLM

from sqale_grpo.demo.model import tiny_model, train_tokenizer
from sqale_grpo.settings.demo_policy import DemoPolicyConfig
from tests.helpers.launch import Starter

THREADS = int(os.environ.get("TEST_THREADS", "1"))  # `make roundings` runs the tests with two, too


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """No fight for the cores, unless TEST_THREADS asks for it."""
    torch.set_num_threads(THREADS)


@pytest.fixture(scope="session")
def tokenizer() -> PreTrainedTokenizerFast:
    """Byte-level, with Qwen's special tokens and chat layout."""
    text = (
        'system user assistant SELECT count(*) FROM shops WHERE city = \'oslo\' {"tool": "run_query", "args": {"sql": '
    )
    return train_tokenizer([text] * 4, 420)


@pytest.fixture(scope="session")
def random_policy(tokenizer: PreTrainedTokenizerFast) -> Qwen3_5ForCausalLM:
    """Both layer types, random weights, in float32."""
    return tiny_model(DemoPolicyConfig(hidden_size=32, head_dim=32, linear_head_dim=16), tokenizer, seed=3).eval()


@pytest.fixture(scope="session")
def shop_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two joined tables."""
    path = tmp_path_factory.mktemp("shop") / "shop.sqlite"
    with sqlite3.connect(path) as connection:
        connection.executescript(
            "CREATE TABLE shops (id INTEGER PRIMARY KEY, city TEXT);"
            "CREATE TABLE sales (id INTEGER PRIMARY KEY, shop_id INTEGER REFERENCES shops(id), amount REAL);"
            "INSERT INTO shops VALUES (1, 'oslo'), (2, 'rome'), (3, 'oslo');"
            "INSERT INTO sales VALUES (1, 1, 2.5), (2, 1, 4.0), (3, 2, 1.0);"
        )
    connection.close()
    return path


@pytest.fixture(scope="session")
def pool():
    """Threads for tools."""
    with ThreadPoolExecutor(4) as threads:
        yield threads


@pytest.fixture(scope="session")
def quick(
    tmp_path_factory: pytest.TempPathFactory, random_policy: Qwen3_5ForCausalLM, tokenizer: PreTrainedTokenizerFast
) -> list[str]:
    """Words of a command line: the demo with the random policy, one turn of 8 tokens, 2 x 2 episodes an update."""
    work = tmp_path_factory.mktemp("quick")
    random_policy.save_pretrained(work / "policy")
    tokenizer.save_pretrained(work / "policy")
    return [
        "configs/demo.yaml",
        f"model.path={work / 'policy'}",
        f"corpus.prepared={work / 'prepared'}",
        f"output={work / 'runs'}",
        "corpus.limit=60",
        "train.questions_per_update=2",
        "train.candidates=2",
        "train.micro_batch=4",
        "train.updates=2",
        "env.tool_turns=1",
        "rollout.max_turn_tokens=8",
        "rollout.max_episode_tokens=2000",
    ]


@pytest.fixture(scope="session")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where small training runs lie; they share one prepared corpus and one policy, across pytest's workers too."""
    folder = tmp_path_factory.mktemp("training")
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = tmp_path_factory.getbasetemp().parent / "prepared"
        shared.mkdir(exist_ok=True)
        (folder / "prepared").symlink_to(shared)
    return folder


@pytest.fixture(scope="session")
def starter() -> Iterator[Starter]:
    """Starts training runs as processes."""
    opened = Starter()
    yield opened
    opened.close()
