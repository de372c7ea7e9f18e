"""A small prepared corpus that every adapter plays on."""

from pathlib import Path

import pytest

from sqale_grpo.corpus import PreparedCorpus, prepare
from sqale_grpo.corpus.demo import DemoShape


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> PreparedCorpus:
    shape = DemoShape(tables=(8, 30), rows=20, schemas=(6, 1), questions=(4, 1))
    place: Path = tmp_path_factory.mktemp("demo") / "prepared"
    return prepare("demo", None, place, shape=shape, progress=False)
