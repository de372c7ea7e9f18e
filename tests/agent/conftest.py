"""The single file, built once: as text, as a module of this process, and a tiny model on disk for it."""

import importlib.util
import sqlite3
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

from sqale_grpo.agent.bundle import NAME, write_agent
from sqale_grpo.agent.settings import SETTINGS
from sqale_grpo.env.prompts import load_prompts
from tests.conftest import ROOT
from tests.helpers.checkpoints import tiny_text_only

PROMPTS = ROOT / "configs" / "prompts" / "demo.json"


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """Sums in one order on every machine."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def agent_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``sqale_agent.py`` with the demo's prompts, alone in a folder."""
    file = tmp_path_factory.mktemp("agent") / NAME
    write_agent(file, load_prompts(PROMPTS), SETTINGS)
    return file


@pytest.fixture(scope="session")
def agent_module(agent_file: Path) -> ModuleType:
    """The same, imported."""
    spec = importlib.util.spec_from_file_location("sqale_agent", agent_file)
    module = importlib.util.module_from_spec(spec)
    sys.modules["sqale_agent"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random policy on disk; it writes no call that parses."""
    return tiny_text_only(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="session")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
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
