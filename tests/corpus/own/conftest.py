"""What the tests of one's own corpora share: the command, and servers that are started once."""

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.helpers import servers
from tests.helpers.programs import program


@pytest.fixture
def corpus() -> Callable[..., int]:
    """``sqale-grpo corpus``: takes the words, returns the exit status."""
    run = program("corpus")
    return lambda *words: run([str(word) for word in words])


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The address of a Postgres database, empty at first."""
    pytest.importorskip("psycopg", reason="make servers installs it")
    with servers.postgres() as address:
        yield address


@pytest.fixture(scope="session")
def mariadb() -> Iterator[str]:
    """The address of a MariaDB database, empty at first."""
    pytest.importorskip("pymysql", reason="make servers installs it")
    with servers.mariadb() as address:
        yield address


def rows(path: Path, sql: str) -> list[tuple]:
    """The rows of a query on a SQLite file."""
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(sql).fetchall()


def lines(path: Path) -> list[dict[str, Any]]:
    """The records of a JSON-lines file."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
