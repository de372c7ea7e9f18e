"""Fixtures of the sampler's tests."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from sqale_grpo.sampler import open_episode_database
from tests.helpers.databases import ZOO, write_database

Opener = Callable[[Path, list[str]], AbstractContextManager[Path]]


@pytest.fixture
def zoo(tmp_path: Path) -> Path:
    return write_database(tmp_path / "zoo.sqlite", ZOO)


@pytest.fixture(params=["copied", "overlaid"])
def opener(request: pytest.FixtureRequest) -> Opener:
    """Opens an episode database by one of the two ways, whatever the file's size; yields its path."""
    small_bytes = 2**40 if request.param == "copied" else 0

    @contextmanager
    def open_path(source: Path, tables: list[str]) -> Iterator[Path]:
        with open_episode_database(source, tables, small_bytes) as database:
            assert Path(f"{database.path}-wal").exists() == (request.param == "overlaid")
            yield database.path

    return open_path
