"""Time to score an update's 144 answers, by stage. Prints a JSON line a figure and a last one with "ok".

    python benchmarks/reward.py [--rounds 5]

18 questions of 8 answers on a shop's database, with results of up to 1,000 rows: right ones, written in two ways, wrong
ones, and some that do not run. BIRD's own comparison (sets) runs on the same pairs of results. Then the same with a
counter-database for each question: built, and right answers run again on it. Then single comparisons of 10,000 rows
with 10,000.
"""

import argparse
import json
import random
import re
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from sqale_grpo.env.chance import rng
from sqale_grpo.env.sandbox import QueryResult, Sandbox, SqlError
from sqale_grpo.env.syntax import is_ordered
from sqale_grpo.reward import Copies, bird_match, compare, join_share, score_candidate, with_agreement
from sqale_grpo.reward.digest import digest
from sqale_grpo.reward.statement import from_clauses

THREADS = 8
LIMITS = {"update_without_execution_s": 0.6, "update_with_copies_s": 0.6, "compare_10000_s": 0.3}
ROWS = 10_000

SCHEMA = """
CREATE TABLE region (id INTEGER PRIMARY KEY, name TEXT, country TEXT);
CREATE TABLE customer (id INTEGER PRIMARY KEY, name TEXT, region_id INTEGER REFERENCES region(id), since TEXT);
CREATE TABLE product (id INTEGER PRIMARY KEY, title TEXT, price REAL, weight REAL);
CREATE TABLE orders (id INTEGER PRIMARY KEY, customer_id INTEGER REFERENCES customer(id), placed TEXT, total REAL);
CREATE TABLE item (order_id INTEGER REFERENCES orders(id), product_id INTEGER REFERENCES product(id), qty INTEGER);
"""
COUNTS = {"region": 12, "customer": 1_000, "product": 400, "orders": 4_000, "item": 12_000}

# (columns, FROM, WHERE, what follows): the gold query and the answers are made of these parts.
PARTS = [
    ("c.name, c.since", "customer c", "c.region_id > 2", ""),
    ("c.name, r.name", "customer c JOIN region r ON c.region_id = r.id", "r.id < 11", ""),
    ("c.id, sum(o.total)", "customer c JOIN orders o ON o.customer_id = c.id", "o.total > 20", "GROUP BY c.id"),
    ("p.title, avg(i.qty)", "product p JOIN item i ON i.product_id = p.id", "p.price > 3", "GROUP BY p.title"),
    ("o.id, o.placed, o.total", "orders o", "o.total > 310", "ORDER BY o.total DESC, o.id"),
    ("r.country, count(*)", "customer c JOIN region r ON c.region_id = r.id", "c.since > '2015'", "GROUP BY r.country"),
    (
        "c.name, max(o.total)",
        "orders o JOIN customer c ON o.customer_id = c.id",
        "c.id > 99",
        "GROUP BY c.id LIMIT 900",
    ),
    (
        "r.name, sum(i.qty * p.price)",
        "region r JOIN customer c ON c.region_id = r.id JOIN orders o ON o.customer_id = c.id "
        "JOIN item i ON i.order_id = o.id JOIN product p ON i.product_id = p.id",
        "p.weight < 9",
        "GROUP BY r.name ORDER BY 2 DESC",
    ),
    ("p.title, p.price * 1.19", "product p", "p.id IN (SELECT product_id FROM item WHERE qty > 3)", "ORDER BY p.title"),
]


@dataclass(frozen=True)
class Group:
    """A gold query and the answers to its question."""

    gold: str
    answers: list[str]


def groups() -> list[Group]:
    """18 groups of 8 answers: every question twice, with another constant."""
    return [
        group(columns, source, where + extra, tail) for columns, source, where, tail in PARTS for extra in ("", " + 1")
    ]


def group(columns: str, source: str, where: str, tail: str) -> Group:
    """Two right answers, four that run with another result, one with a wrong name, one that does not parse."""
    gold = f"SELECT {columns} FROM {source} WHERE {where} {tail}"
    answers = [
        gold.strip(),
        f"SELECT {columns}\n  FROM {source}\n WHERE ({where}) {tail}",
        f"SELECT {columns} FROM {source} {tail}",
        f"SELECT {columns} FROM {source} WHERE {where} AND 1 = 0 {tail}",
        f"SELECT {columns}, 1 FROM {source} WHERE {where} {tail}",
        f"SELECT * FROM (SELECT {columns} FROM {source} WHERE {where} {tail}) LIMIT 500",
        f"SELECT {columns}, x.nothing FROM {source} WHERE {where} {tail}",
        f"SELECT {columns} FROM {source} WHERE {where} {tail} GROUP",
    ]
    return Group(gold, answers)


def build(path: Path) -> None:
    """The shop, filled by chance."""
    chance = rng("benchmark reward")
    rows: dict[str, Callable[[int], tuple]] = {
        "region": lambda key: (key, f"region {key}", f"country {key % 4}"),
        "customer": lambda key: (key, f"customer {key}", pick(chance, "region"), f"20{chance.randint(10, 24)}-01-01"),
        "product": lambda key: (key, f"product {key}", chance.random() * 90, chance.random() * 10),
        "orders": lambda key: (
            key,
            pick(chance, "customer"),
            f"2024-{chance.randint(1, 12):02}-01",
            chance.random() * 400,
        ),
        "item": lambda key: (pick(chance, "orders"), pick(chance, "product"), chance.randint(1, 5)),
    }
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(SCHEMA)
        for table, row in rows.items():
            values = [row(key) for key in range(1, COUNTS[table] + 1)]
            connection.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(values[0]))})", values)
        connection.commit()


def pick(chance: random.Random, table: str) -> int:
    """A key of a table."""
    return chance.randint(1, COUNTS[table])


def stages(path: Path, asked: list[Group]) -> dict[str, float]:
    """Seconds by stage, one after the other in one thread."""
    with Sandbox(path) as sandbox:
        sandbox.execute("SELECT 1")
        seconds, executed = timed(lambda: [(group, *run_all(group, sandbox)) for group in asked])
        stage = {"execute_s": seconds}
        pairs = [(result, gold, is_ordered(group.gold)) for group, gold, ran in executed for _, result in ran]
        texts = [sql for _, _, ran in executed for sql, _ in ran]
        schema = sandbox.schema
        stage["compare_s"], _ = timed(lambda: [compare(*pair) for pair in pairs])
        from_clauses.cache_clear()
        stage["joins_s"], _ = timed(lambda: [join_share(sql, schema) for sql in texts])
        stage["digest_s"], _ = timed(lambda: [digest(result, ordered) for result, _, ordered in pairs])
        outcomes = [[score_candidate(group.gold, path, sql, sandbox) for sql in group.answers] for group in asked]
        stage["agreement_s"], _ = timed(lambda: [with_agreement(each) for each in outcomes])
        stage["bird_compare_s"], _ = timed(lambda: [bird_match(result.rows, gold.rows) for result, gold, _ in pairs])
    stage["rows"] = sum(len(result.rows) for result, _, _ in pairs)
    return stage


def copy_stages(path: Path, asked: list[Group]) -> dict[str, float]:
    """Seconds, one after the other in one thread: of building a copy for each group, and of running the gold query
    and right answers there."""
    built = again = 0.0
    with Sandbox(path, immutable=True) as sandbox:
        sandbox.execute("SELECT 1")
        for group in asked:
            tables = [table for table in sandbox.schema.tables if re.search(rf"\b{table}\b", group.gold)]
            with Copies(group.gold, tables, (0,), sandbox, path.parent) as copies:
                whole, fall = timed(lambda: copies.fall(group.gold, frozenset()))  # noqa: B023
                once, _ = timed(lambda: copies.fall(group.answers[1], frozenset()))  # noqa: B023
            assert fall is None, fall
            built += whole - 2 * once  # the gold query and an answer ran there, too
            again += 3 * once
    return {"copies_s": built, "copies_execute_s": again}


def run_all(group: Group, sandbox: Sandbox) -> tuple[QueryResult, list[tuple[str, QueryResult]]]:
    """The gold result, and the answers that run with their results."""
    ran = []
    for sql in group.answers:
        try:
            ran.append((sql, sandbox.execute(sql)))
        except SqlError:
            continue
    return sandbox.execute(group.gold), ran


def update(path: Path, asked: list[Group]) -> float:
    """Seconds to score all groups as the trainer does, execution included, from several threads."""
    from_clauses.cache_clear()
    with Sandbox(path) as sandbox, ThreadPoolExecutor(THREADS) as threads:
        pairs = [(group.gold, sql) for group in asked for sql in group.answers]
        return timed(lambda: list(threads.map(lambda pair: score_candidate(pair[0], path, pair[1], sandbox), pairs)))[0]


def large() -> dict[str, float]:
    """Seconds of single comparisons of 10,000 rows with 10,000, in other orders."""
    chance = rng("benchmark large results")
    gold = [(key, f"name {key % 99}", chance.random() * 1_000, None if key % 7 else "x") for key in range(ROWS)]
    mixed = chance.sample(gold, ROWS)
    noisy = [(key, name, number * (1 + 1e-10), rest) for key, name, number, rest in mixed]
    wrong = [(key, name, number + 1, rest) for key, name, number, rest in mixed]
    numbers, others = [row[2:3] for row in gold], [row[2:3] for row in noisy]
    pairs: dict[str, tuple[list[tuple], list[tuple]]] = {
        "equal": (mixed, gold),
        "noisy": (noisy, gold),
        "wrong": (wrong, gold),
        "one_column": (others, numbers),
    }
    return {
        name: timed(partial(compare, result(predicted), result(expected), False))[0]
        for name, (predicted, expected) in pairs.items()
    }


def result(rows: list[tuple]) -> QueryResult:
    """Rows as the sandbox returns them."""
    return QueryResult(tuple(f"c{index}" for index in range(len(rows[0]))), rows, False, frozenset())


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """Wall seconds of a call, and what it returned."""
    started = time.perf_counter()
    value = work()
    return time.perf_counter() - started, value


def median(rounds: list[dict[str, float]]) -> dict[str, float]:
    """Median of each figure over the rounds."""
    return {name: round(statistics.median(each[name] for each in rounds), 4) for name in rounds[0]}


def main() -> int:
    """Measure and print; 0 where every figure is within its limit."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    asked = groups()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "shop.sqlite")
        build(path)
        by_stage = median([stages(path, asked) for _ in range(rounds)])
        with_copies = median([copy_stages(path, asked) for _ in range(rounds)])
        whole = median([{"update_s": update(path, asked)} for _ in range(rounds)])
    answers = sum(len(each.answers) for each in asked)
    print(json.dumps({"figure": "stages", "groups": len(asked), "answers": answers, **by_stage}))
    print(json.dumps({"figure": "update", "threads": THREADS, "gold_cached_after_round": 1, **whole}))
    print(json.dumps({"figure": "copies", "groups": len(asked), **with_copies}))
    compared = median([large() for _ in range(rounds)])
    print(json.dumps({"figure": "compare_10000_s", **compared}))
    scoring = sum(by_stage[name] for name in ("compare_s", "joins_s", "digest_s", "agreement_s"))
    measured = {
        "update_without_execution_s": round(scoring, 4),
        # Apart from execution, as the line above.
        "update_with_copies_s": round(scoring + with_copies["copies_s"] - with_copies["copies_execute_s"], 4),
        "compare_10000_s": max(compared.values()),
    }
    ok = all(measured[name] <= limit for name, limit in LIMITS.items())
    print(json.dumps({**measured, "limits": LIMITS, "ok": ok}))
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
