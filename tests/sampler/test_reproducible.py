"""The same seed, update and question give the same database in any number of processes and threads."""

import hashlib
import multiprocessing
import sqlite3
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from sqale_grpo.env.chance import rng
from sqale_grpo.env.schema import SchemaGraph
from sqale_grpo.sampler import open_episode_database, select_tables
from tests.helpers.databases import write_database

DRAWS = [(42, update, f"question {number}") for update in (0, 7, 1700) for number in range(4)]


def dump(source: Path, draw: tuple[int, int, str]) -> str:
    """Digest of the logical dump of the draw's database."""
    tables = select_tables(SchemaGraph.from_file(source), ["t3"], "sampled", rng("tables", *draw))
    with open_episode_database(source, tables) as database, closing(sqlite3.connect(database.path)) as connection:
        return hashlib.sha256("\n".join([*tables, *connection.iterdump()]).encode()).hexdigest()


@pytest.mark.full
def test_processes_and_threads_do_not_matter(tmp_path: Path) -> None:
    script = "".join(
        f"CREATE TABLE t{number} (id INTEGER PRIMARY KEY, a TEXT, up INT REFERENCES t{number // 2}(id));"
        f"INSERT INTO t{number} VALUES (1, 'x{number}', 1), (2, 'y', NULL);"
        for number in range(90)
    )
    source = write_database(tmp_path / "s.sqlite", script)
    alone = [dump(source, draw) for draw in DRAWS]
    assert len(set(alone)) == len(DRAWS)
    for processes in (2, 4):
        with ProcessPoolExecutor(processes, mp_context=multiprocessing.get_context("spawn")) as pool:
            assert list(pool.map(dump, [source] * len(DRAWS), DRAWS)) == alone
    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(dump, [source] * len(DRAWS) * 5, DRAWS * 5)) == alone * 5
