"""A large file is neither copied nor read: time and memory do not depend on its size."""

import os
import time
from pathlib import Path

import pytest

from sqale_grpo.env.sandbox import Sandbox
from sqale_grpo.sampler import open_episode_database
from tests.helpers.databases import ZOO, ZOO_TABLES, contents, rows, write_database

MB = 2**20


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """192 MB, nearly all of it in the two tables ``big`` and ``other``."""
    script = "".join(
        f"CREATE TABLE {name} (id INTEGER PRIMARY KEY, data BLOB);"
        f"WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < 96)"
        f"INSERT INTO {name} SELECT i, zeroblob({MB}) FROM n;"
        for name in ("big", "other")
    )
    return write_database(tmp_path_factory.mktemp("large") / "large.sqlite", ZOO + script, "journal_mode = OFF")


def peak_mb() -> float:
    """The most memory that this process held at once since the mark was set."""
    (line,) = (row for row in Path("/proc/self/status").read_text().splitlines() if row.startswith("VmHWM"))
    return int(line.split()[1]) / 1024


def test_opening_costs_milliseconds_and_no_memory(large: Path) -> None:
    Path("/proc/self/clear_refs").write_text("5")  # the high-water mark starts anew
    before = peak_mb()
    times = []
    for _ in range(5):
        start = time.perf_counter()
        with open_episode_database(large, ["big", "author"]) as database:
            names = rows(
                database.path, "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%'"
            )
            times.append(time.perf_counter() - start)
            assert names == [(b"big",), (b"author",)]
            assert sum(file.stat().st_blocks for file in database.path.parent.glob("*-wal")) * 512 < MB
    assert min(times) < 0.05
    assert peak_mb() - before < 64


def test_it_behaves_as_a_small_one(large: Path) -> None:
    with open_episode_database(large, ["book", "big", "tag"]) as database, Sandbox(database.path) as sandbox:
        assert sandbox.schema.tables == database.tables == ("book", "big", "tag")
        assert sandbox.execute("SELECT count(*), max(id) FROM big").rows == [(96, 96)]
        assert sandbox.execute("SELECT t.word FROM tag t JOIN book b ON b.isbn = t.book ORDER BY 1").rows == [
            ("a",),
            ("a",),
            ("b",),
        ]
        assert contents(database.path, "book") == contents(large, "book")
    assert not database.path.exists()
    assert not list(database.path.parent.iterdir())


def test_without_a_link_the_tables_are_copied_and_it_says_so(large: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)  # what the kernel answers for another owner's file
    with pytest.warns(RuntimeWarning, match=r"large\.sqlite .*192 MB.* copied"):
        database = open_episode_database(large, ["book", "heap"])
    with database:
        assert not Path(f"{database.path}-wal").exists()
        assert contents(database.path, "heap") == contents(large, "heap")


def test_new_pages_step_over_the_page_that_sqlite_locks(zoo: Path) -> None:
    # SQLite keeps the page at 1 GiB for its locks. A file that ends right before it, here with a hole, has its
    # first new page there.
    os.truncate(zoo, 2**30)
    tables = [table for table in ZOO_TABLES if table != "long"]
    with open_episode_database(zoo, tables) as database, Sandbox(database.path) as sandbox:
        assert sandbox.schema.tables == tuple(tables)
        for table in ("book", "heap", "tag"):
            assert contents(database.path, table) == contents(zoo, table)
