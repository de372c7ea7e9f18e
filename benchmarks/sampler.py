"""Time to build an episode's database, and to open a large file. Prints a JSON line a figure and a last one with "ok".

    python benchmarks/sampler.py [--megabytes 1024]

Compared with ``sqale.build_database``, which builds a whole database from its dataset row, on the same schemas.
"""

import argparse
import json
import random
import resource
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import sqale

from sqale_grpo.env.sandbox import Sandbox
from sqale_grpo.sampler import open_episode_database

ROWS = 69  # SQaLe's median a table
LIMITS = {
    "build_ms": 8.0,  # 64 of 113 tables
    "times_faster": 10.0,  # than sqale.build_database builds the 113
    "growth_by_unchosen": 4.0,  # 20 tables out of 350 over 20 out of 20: the catalog is read, the rows are not
    "large_open_ms": 50.0,
    "large_extra_mb": 64.0,
}


def dataset_row(tables: int) -> dict[str, str]:
    """A schema in SQaLe's layout: five columns and ``ROWS`` rows a table, each with a key to an earlier one."""
    chance = random.Random(tables)
    ddl, content = [], {}
    for number in range(tables):
        parent = f"entity_{chance.randrange(number)}" if number else "entity_0"
        ddl.append(
            f"CREATE TABLE entity_{number} (id INTEGER PRIMARY KEY, label VARCHAR(80) NOT NULL, amount NUMERIC, "
            f"created TEXT, parent_id INT, FOREIGN KEY (parent_id) REFERENCES {parent}(id));"
        )
        content[f"entity_{number}"] = [
            {
                "id": row,
                "label": f"label {chance.randrange(10**6)}",
                "amount": round(chance.random() * 1000, 2),
                "created": f"2024-{chance.randint(1, 12):02}-{chance.randint(1, 28):02}",
                "parent_id": chance.randint(1, ROWS),
            }
            for row in range(1, ROWS + 1)
        ]
    return {"full_schema": "\n".join(ddl), "schema_content": json.dumps(content)}


def milliseconds(work: Callable[[], object], repeats: int) -> float:
    """Shortest wall time of one call: whatever else the machine does can only add to it."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append((time.perf_counter() - start) * 1000)
    return min(times)


def build_ms(source: Path, tables: int, chosen: int) -> float:
    """Time to open and close an episode database of ``chosen`` tables, drawn anew each time."""
    chance = random.Random(chosen)

    def once() -> None:
        names = [f"entity_{number}" for number in chance.sample(range(tables), chosen)]
        open_episode_database(source, names).close()

    return milliseconds(once, 60)


def build_whole(row: dict[str, str]) -> None:
    """The library's own build, in memory."""
    sqale.build_database(row).close()


def measure_builds(folder: Path) -> dict[str, float]:
    """Figures for schemas of 20, 113 and 350 tables."""
    times = {}
    for tables in (20, 113, 350):
        row = dataset_row(tables)
        source = folder / f"{tables}.sqlite"
        sqale.build_database(row, source).close()
        whole = milliseconds(partial(build_whole, row), 10)
        for chosen in sorted({4, 20, 64, tables}):
            if chosen <= tables:
                times[tables, chosen] = build_ms(source, tables, chosen)
                report(tables=tables, chosen=chosen, build_ms=times[tables, chosen], sqale_whole_ms=whole)
        if tables == 113:
            faster = whole / times[113, 64]
    return {
        "build_ms": times[113, 64],
        "times_faster": faster,
        "growth_by_unchosen": times[350, 20] / times[20, 20],
    }


def make_large(path: Path, megabytes: int) -> None:
    """A database of so many megabytes, nearly all in two tables with an index each."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = OFF")
        for number in range(40):
            connection.execute(f"CREATE TABLE entity_{number} (id INTEGER PRIMARY KEY, label TEXT, data BLOB)")
            connection.execute(f"CREATE INDEX label_{number} ON entity_{number} (label)")
        for number in (0, 1):
            connection.execute(
                "WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < ?) "
                f"INSERT INTO entity_{number} SELECT i, 'label ' || i, zeroblob(3900) FROM n",
                (megabytes * 128,),
            )
        connection.commit()


def open_large(path: Path) -> tuple[float, float, float]:
    """In a process of its own: milliseconds to open, to open and query, and megabytes of memory."""
    with Sandbox(path) as sandbox:  # starts the workers
        sandbox.execute("SELECT 1")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    tables = ["entity_1", "entity_7", "entity_0"]

    def query() -> None:
        with open_episode_database(path, tables) as database, Sandbox(database.path) as sandbox:
            assert sandbox.schema.tables == tuple(tables)
            assert sandbox.execute("SELECT id FROM entity_0 WHERE label = 'label 1000'").rows == [(1000,)]

    opened = milliseconds(lambda: open_episode_database(path, tables).close(), 10)
    queried = milliseconds(query, 10)
    return opened, queried, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024


def measure_large(folder: Path, megabytes: int) -> dict[str, float]:
    """Figures for one large file."""
    path = folder / "large.sqlite"
    make_large(path, megabytes)
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        opened, queried, extra = pool.submit(open_large, path).result()
    report(file_mb=path.stat().st_size / 2**20, open_ms=opened, open_and_query_ms=queried, extra_mb=extra)
    return {"large_open_ms": opened, "large_extra_mb": extra}


def report(**figures: object) -> None:
    """One JSON line, floats rounded."""
    print(json.dumps({k: round(v, 3) if isinstance(v, float) else v for k, v in figures.items()}), flush=True)


def main() -> int:
    """Measure everything; 0 if every figure keeps its limit."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=int, default=1024, help="size of the large file (default: %(default)s)")
    with tempfile.TemporaryDirectory() as name:
        figures = measure_builds(Path(name)) | measure_large(Path(name), parser.parse_args().megabytes)
    at_least = {"times_faster"}
    ok = all((figures[key] >= limit) if key in at_least else (figures[key] <= limit) for key, limit in LIMITS.items())
    report(benchmark="sampler", **figures, limits=LIMITS, ok=ok)
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
