"""Time and memory of an update's environment share. Prints a JSON line a round and a last one with "ok".

    python benchmarks/env.py [--rounds 5]

Replays 144 recorded episodes (18 questions of 8 candidates, 6 turns of 5 calls and an answer) at once over databases of
64 tables, and runs the same statements on one bare sqlite3 connection a database. Both times start with nothing open.
"""

import argparse
import json
import random
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

from sqale_grpo.env.budget import Budget
from sqale_grpo.env.chance import rng
from sqale_grpo.env.episode import Episode
from sqale_grpo.env.limits import Query
from sqale_grpo.env.sandbox import QueryResult, Sandbox, SqlError, WorkerPool
from sqale_grpo.env.schema import SchemaGraph

QUESTIONS, CANDIDATES, TURNS, CALLS = 18, 8, 6, 5
TABLES = 64
# Rows of a table: log-normal with SQaLe's median. With this spread statements cost about what the first six rows of
# real gold queries do: 0.02 ms in the median, 0.09 ms in the mean, against 0.02 and 0.13 (11,200 of Spider, BIRD, …).
MEDIAN_ROWS, SPREAD, MOST_ROWS = 69, 1.0, 2_000
THREADS = 8  # as the trainer runs tools
LIMITS = {"seconds": 1.5, "times_raw": 1.5, "mb_an_episode": 2.0}

Statement = tuple[Path, str, int | None]
Script = list[str]


def build(path: Path, chance: random.Random) -> Path:
    """A database of ``TABLES`` tables, each with a key to an earlier one."""
    sizes = [min(MOST_ROWS, round(MEDIAN_ROWS * chance.lognormvariate(0, SPREAD)) + 1) for _ in range(TABLES)]
    with closing(sqlite3.connect(path)) as connection:
        for number in range(TABLES):
            parent = chance.randrange(number) if number else 0
            connection.execute(
                f"CREATE TABLE entity_{number} (id INTEGER PRIMARY KEY, parent_id INTEGER, label VARCHAR(80), "
                f"kind TEXT, amount NUMERIC, day TEXT, FOREIGN KEY (parent_id) REFERENCES entity_{parent}(id))"
            )
            rows = [
                (key, chance.randint(1, sizes[parent]), f"label {chance.randrange(10**6)}", chance.choice("abcdefgh"),
                 round(chance.random() * 1000, 2), f"2024-{chance.randint(1, 12):02}-{chance.randint(1, 28):02}")
                for key in range(1, sizes[number] + 1)
            ]  # fmt: skip
            connection.executemany(f"INSERT INTO entity_{number} VALUES (?, ?, ?, ?, ?, ?)", rows)
        connection.commit()
    return path


@dataclass(frozen=True)
class Task:
    """What the candidates of one question have in common: the tables they look at."""

    child: str
    parent: str


def draw_task(chance: random.Random, database: Path) -> Task:
    child = f"entity_{chance.randrange(1, TABLES)}"
    key = next(key for key in SchemaGraph.from_file(database).foreign_keys if key.child == child)
    return Task(child, key.parent)


def query(chance: random.Random, task: Task) -> str:
    """What a policy asks, in the corpus' three difficulties; one in ten names a column that is not there."""
    child, parent = task.child, task.parent
    kind, least, day = chance.choice("abcdefgh"), chance.randrange(900), f"2024-{chance.randint(1, 12):02}-15"
    column = "name" if chance.random() < 0.1 else "label"
    join = f"{child} AS c JOIN {parent} AS p ON c.parent_id = p.id"
    average = f"(SELECT AVG(x.amount) FROM {child} AS x WHERE x.kind = c.kind)"
    simple = [
        f"SELECT {column}, amount FROM {child} WHERE kind = '{kind}' AND amount > {least} ORDER BY amount DESC",
        f"SELECT COUNT(DISTINCT {column}) FROM {child} WHERE day >= '{day}' AND amount < {least}",
        f"SELECT {column} FROM {child} WHERE amount = (SELECT MAX(amount) FROM {child} WHERE kind <> '{kind}')",
    ]
    moderate = [
        f"SELECT p.{column}, c.amount FROM {join} WHERE c.kind = '{kind}' AND c.day < '{day}' ORDER BY c.day LIMIT 10",
        f"SELECT p.kind, COUNT(c.{column}), AVG(c.amount) FROM {join} WHERE c.amount > {least} GROUP BY p.kind",
        f"SELECT {column} FROM {parent} WHERE id NOT IN (SELECT parent_id FROM {child} WHERE amount > {least})",
    ]
    hard = [
        f"SELECT p.{column}, c.amount FROM {join} WHERE c.amount > {average} AND c.day > '{day}' ORDER BY c.amount",
        f"WITH sums AS (SELECT p.id, p.kind, SUM(c.amount) AS total FROM {join} WHERE c.day < '{day}' GROUP BY p.id) "
        f"SELECT s.kind, q.{column}, s.total FROM sums AS s JOIN {parent} AS q ON q.id = s.id "
        "WHERE s.total = (SELECT MAX(total) FROM sums AS t WHERE t.kind = s.kind) ORDER BY s.kind",
        f"SELECT kind, {column}, amount FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY kind ORDER BY amount DESC) "
        f"AS place FROM {child}) WHERE place <= 3 AND amount > {least} ORDER BY kind, place",
    ]
    return chance.choice(chance.choice([simple, moderate, hard]))


def turn(chance: random.Random, number: int, task: Task) -> str:
    """One recorded completion of ``CALLS`` calls: look-ups first, then queries."""
    look_up = [
        ("list_tables", {}),
        ("describe_table", {"table_name": task.child}),
        ("describe_table", {"table_name": task.parent}),
        ("join_path", {"table_a": task.child, "table_b": task.parent}),
        ("sample_rows", {"table_name": task.child, "limit": 3}),
        ("foreign_keys", {"table_name": task.child}),
        ("distinct_values", {"table_name": task.child, "column_name": "kind"}),
    ]
    calls = look_up[CALLS * number :][:CALLS]
    calls += [("run_query", {"sql": query(chance, task)}) for _ in range(CALLS - len(calls))]
    objects = "\n".join(json.dumps({"tool": tool, "args": args}) for tool, args in calls)
    return f"<think>\nThe tables are not clear yet, so I look at them.\n</think>\n{objects}"


def record(chance: random.Random, task: Task) -> Script:
    """One candidate's completions: tool turns, then an answer."""
    answer = f"<think>\nDone.\n</think>\nSELECT COUNT(*) FROM {task.child}"
    return [*(turn(chance, number, task) for number in range(TURNS)), answer]


def record_all(databases: Sequence[Path]) -> dict[Path, list[Script]]:
    """The candidates of one question a database."""
    tasks = {path: draw_task(rng("task", path.stem), path) for path in databases}
    return {
        path: [record(rng("record", path.stem, candidate), task) for candidate in range(CANDIDATES)]
        for path, task in tasks.items()
    }


class RecordingSandbox(Sandbox):
    """Notes the statements that it is asked to run."""

    def __init__(self, database: Path, pool: WorkerPool, statements: list[Statement]) -> None:
        super().__init__(database, pool=pool, immutable=True)
        self.statements = statements

    def ask(self, queries: Sequence[Query], budget: Budget | None = None) -> list[QueryResult | SqlError]:
        self.statements += [(self.database, str(query.sql), query.cap) for query in queries]
        return super().ask(queries, budget)


def play(episode: Episode, script: Script) -> int:
    """Drive one episode to its end; the number of its calls."""
    episode.prompt()
    for completion in script:
        episode.step(completion)
    assert episode.finished is not None and episode.finished.sql is not None
    return sum(len(turn.calls) for turn in episode.turns)


def replay(
    scripts: dict[Path, list[Script]], threads: ThreadPoolExecutor, pool: WorkerPool
) -> tuple[float, int, float]:
    """An update's episodes, all in flight: wall time, calls, and memory that is held while all are open, in MB."""
    before = anonymous_mb(pool)
    start = time.perf_counter()
    with ExitStack() as stack:
        opened = ((Sandbox(path, pool=pool, immutable=True), group) for path, group in scripts.items())
        sandboxes = [(stack.enter_context(sandbox), group) for sandbox, group in opened]
        # Candidate by candidate, not question by question: episodes of all questions are under way together.
        flights = [
            (Episode("Which label has the largest amount?", sandbox), group[candidate])
            for candidate in range(CANDIDATES)
            for sandbox, group in sandboxes
        ]
        calls = sum(threads.map(lambda flight: play(*flight), flights))
        held = anonymous_mb(pool) - before
    return time.perf_counter() - start, calls, held


def anonymous_mb(pool: WorkerPool) -> float:
    """Memory of this process and the workers that no file backs: the database image, which all share, is not in it."""
    return sum(field_mb(f"/proc/{process}/smaps_rollup", "Anonymous:") for process in ["self", *pool.pids])


def peak_mb(pool: WorkerPool) -> float:
    """Most resident memory that this process and the workers had, added up."""
    return sum(field_mb(f"/proc/{process}/status", "VmHWM:") for process in ["self", *pool.pids])


def field_mb(file: str, field: str) -> float:
    """A field in kB of a file under /proc, in MB."""
    for line in Path(file).read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) / 1024
    raise OSError(f"{file} has no line {field}")


def bare(statements: list[Statement]) -> float:
    """Wall time of the statements on one connection a database, rows fetched as far as the sandbox fetches them."""
    start = time.perf_counter()
    connections: dict[Path, sqlite3.Connection] = {}
    for database, sql, max_rows in statements:
        if database not in connections:
            connections[database] = sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True)
        try:
            connections[database].execute(sql).fetchmany(10_000 if max_rows is None else max_rows + 1)
        except sqlite3.Error:
            continue
    for connection in connections.values():
        connection.close()
    return time.perf_counter() - start


def recorded_statements(scripts: dict[Path, list[Script]], pool: WorkerPool) -> list[Statement]:
    """What the episodes ask of SQLite, in the order of an update: all episodes' first turns, then all second ones."""
    statements: list[Statement] = []
    with ExitStack() as stack:
        flights = [
            (Episode("", sandbox), script)
            for path, group in scripts.items()
            for sandbox in [stack.enter_context(RecordingSandbox(path, pool, statements))]
            for script in group
        ]
        for number in range(TURNS + 1):
            for episode, script in flights:
                episode.step(script[number])
    return statements


def measure(folder: Path, rounds: int) -> dict[str, float]:
    """Medians over the rounds; each round takes both times one after the other, so that a busy machine meets both."""
    databases = [build(folder / f"{number}.sqlite", rng("benchmark", number)) for number in range(QUESTIONS)]
    scripts = record_all(databases)
    found: list[dict[str, float]] = []
    with WorkerPool() as pool, ThreadPoolExecutor(THREADS) as threads:
        statements = recorded_statements(scripts, pool)
        for _ in range(rounds):
            raw = bare(statements)
            seconds, calls, held = replay(scripts, threads, pool)
            found.append(
                {
                    "calls": calls,
                    "statements": len(statements),
                    "distinct": len(set(statements)),
                    "seconds": seconds,
                    "calls_a_second": calls / seconds,
                    "raw_seconds": raw,
                    "times_raw": seconds / raw,
                    "mb_an_episode": held / (QUESTIONS * CANDIDATES),
                    "peak_mb": peak_mb(pool),
                }
            )
            print(json.dumps(rounded(found[-1])), flush=True)
    return {name: statistics.median(line[name] for line in found) for name in found[0]}


def rounded(values: dict[str, float]) -> dict[str, float]:
    return {name: round(value, 3) for name, value in values.items()}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and compare with the limits. Returns 0 where all hold."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rounds", type=int, default=5)
    with tempfile.TemporaryDirectory() as folder:
        found = measure(Path(folder), options.parse_args(arguments).rounds)
    ok = all(found[name] <= limit for name, limit in LIMITS.items())
    print(json.dumps({"benchmark": "env", **rounded(found), "limits": LIMITS, "ok": ok}))
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
