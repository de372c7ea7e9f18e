"""On random databases, odd ones included, both ways of building give the chosen tables as they are, and no other."""

import random
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from sqale_grpo.env.schema import SchemaGraph
from sqale_grpo.sampler import open_episode_database, select_tables
from tests.helpers.databases import catalog, connect, contents

TABLES = ["a", "select", "Order Details", "o'brien", "Ärger", 'q"q', "t;--", "1st", "back`tick", "new\nline", "rowid"]
COLUMNS = ["id", "B", "c d", "rowid", "oid", "_rowid_", 'e"f', "ü"]
TYPES = ["", "INTEGER", "INT", "TEXT", "REAL", "BLOB", "VARCHAR(20)", "DECIMAL(10,2)", "DATE"]
KEYS = [
    "",
    "",
    "INTEGER PRIMARY KEY",
    "INTEGER PRIMARY KEY AUTOINCREMENT",
    "INTEGER PRIMARY KEY DESC",
    "TEXT PRIMARY KEY",
]
EXTRAS = ["", "", "", "UNIQUE", "COLLATE NOCASE", "DEFAULT (1 + 2)", "NOT NULL DEFAULT 0", "CHECK (1)"]
FORMS = ["page_size = 512", "page_size = 65536", "encoding = 'UTF-16le'", "auto_vacuum = FULL", "journal_mode = WAL"]
ENDS = ["VACUUM", "ANALYZE", "SELECT 1"]


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def table(chance: random.Random, name: str, others: list[str], columns: list[str]) -> str:
    """A CREATE TABLE statement with keys, constraints and generated columns by chance."""
    key = chance.choice(KEYS)
    parts = [f"{quoted(columns[0])} {key or chance.choice(TYPES)}"]
    for column in columns[1:]:
        part = f"{quoted(column)} {chance.choice(TYPES)} {chance.choice(EXTRAS)}"
        parent = chance.choice([*others, "gone"])
        parts.append(part + (f" REFERENCES {quoted(parent)}" if chance.random() < 0.3 else ""))
    if chance.random() < 0.3:
        parts.append(f"made AS ({quoted(columns[0])}) {chance.choice(['STORED', 'VIRTUAL'])}")
    without = " WITHOUT ROWID" if key == "TEXT PRIMARY KEY" and chance.random() < 0.5 else ""
    return f"CREATE TABLE {quoted(name)} ({', '.join(parts)}){without}"


def value(chance: random.Random) -> object:
    kinds: list[Callable[[], object]] = [
        lambda: None,
        lambda: chance.randint(-(2**63), 2**63 - 1),
        lambda: chance.randint(0, 9),
        chance.random,
        lambda: "word" * chance.randint(0, 200),
        lambda: b"\x00\xff" * chance.randint(0, 300),
        lambda: "é\x00z",
    ]
    return chance.choice(kinds)()


def fill(connection: sqlite3.Connection, chance: random.Random, name: str, columns: list[str]) -> None:
    """Rows with gaps, and an index; what a constraint refuses is left out."""
    listed, marks = ", ".join(map(quoted, columns)), ", ".join("?" * len(columns))
    for _ in range(chance.choice([0, 1, 5, 40])):
        with suppress(sqlite3.Error):
            row = [value(chance) for _ in columns]
            connection.execute(f"INSERT INTO {quoted(name)} ({listed}) VALUES ({marks})", row)
    if chance.random() < 0.5:
        connection.execute(f"DELETE FROM {quoted(name)} WHERE {quoted(columns[0])} % 3 = 0")
    order = ", ".join(f"{quoted(column)} {chance.choice(['', 'DESC'])}" for column in reversed(columns))
    where = f"WHERE {quoted(columns[-1])} IS NOT NULL" if chance.random() < 0.3 else ""
    if chance.random() < 0.6:
        connection.execute(f"CREATE INDEX {quoted('index ' + name)} ON {quoted(name)} ({order}) {where}")
    if chance.random() < 0.2:
        connection.execute(f"CREATE VIEW {quoted('view ' + name)} AS SELECT * FROM {quoted(name)}")


def write_random(path: Path, chance: random.Random) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(f"PRAGMA {chance.choice(FORMS)}")
        connection.execute("PRAGMA synchronous = OFF")
        names = chance.sample(TABLES, chance.randint(1, 6))
        for number, name in enumerate(names):
            columns = chance.sample(COLUMNS, chance.randint(1, 5))
            connection.execute(table(chance, name, names[: number + 1], columns))
            fill(connection, chance, name, columns)
        connection.execute(chance.choice(ENDS))


@pytest.mark.full
@pytest.mark.parametrize("small_bytes", [2**40, 0], ids=["copied", "overlaid"])
@given(st.integers(0, 2**32))
@example(11_726)  # a rowid of 4 beside a column _rowid_ of 1
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_chosen_tables_and_no_other(tmp_path: Path, small_bytes: int, seed: int) -> None:
    chance = random.Random(seed)
    source = tmp_path / f"{seed}-{len(list(tmp_path.iterdir()))}.sqlite"
    write_random(source, chance)
    graph = SchemaGraph.from_file(source)
    chosen = select_tables(graph, [chance.choice(graph.tables)], f"distractors:{chance.randint(0, 5)}", chance)
    with open_episode_database(source, chosen, small_bytes) as database:
        assert list(SchemaGraph.from_file(database.path).tables) == chosen
        for name in chosen:
            assert contents(database.path, name) == contents(source, name)
            assert catalog(database.path, name) == catalog(source, name)
        with closing(connect(database.path)) as connection:
            if small_bytes:
                assert connection.execute("PRAGMA integrity_check").fetchall() == [(b"ok",)]
            for name in set(graph.tables) - set(chosen):
                with pytest.raises(sqlite3.OperationalError, match="no such table"):
                    connection.execute(f"SELECT * FROM {quoted(name)}")
