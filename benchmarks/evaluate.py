"""Seconds and memory of an evaluation without its model. Prints a JSON line a figure and a last one with "ok".

    python benchmarks/evaluate.py [--questions 300]

300 questions over databases of 113 tables (SQaLe's median) with 70 rows each, full schema, through the real runner:
databases opened, episodes played, answers scored, records written. In the model's place a script looks around as a
trained policy does: all tables, each gold table's columns and rows, the keys, its query, the answer.
"""

import argparse
import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from rich.console import Console

from sqale_grpo.evaluate.backend import Failure
from sqale_grpo.evaluate.records import SUMMARY, TokenCounts
from sqale_grpo.evaluate.runner import run_evaluation
from sqale_grpo.rollout.world import World
from sqale_grpo.settings.corpora import open_split
from sqale_grpo.settings.evaluation import EvaluationConfig, load_evaluation

LIMITS = {"seconds": 60.0, "peak_mb": 2048.0}
TABLES = 113
LOOK = 0.1  # seconds between two looks at the memory


class ScriptedBackend:
    """Plays the same five turns in every episode, its tools in the pool's threads as a model's are."""

    def __init__(self) -> None:
        self.facts: dict[str, Any] = {"parameters": None}

    def play(self, episodes: Sequence[World], pool: ThreadPoolExecutor) -> list[TokenCounts | Failure]:
        """All episodes side by side."""
        return list(pool.map(self._play, episodes))

    def remarks(self) -> list[str]:
        """Nothing to say."""
        return []

    def close(self) -> None:
        """Nothing is held."""

    def _play(self, each: World) -> TokenCounts:
        question = each.group.question
        tables = list(question.gold_tables)
        turns: list[list[tuple[str, dict[str, str]]]] = [
            [("list_tables", {})],
            [("describe_table", {"table_name": name}) for name in tables],
            [*(("sample_rows", {"table_name": name}) for name in tables), ("foreign_keys", {})],
            [("run_query", {"sql": question.gold_sql})],
            [("submit_sql", {"sql": question.gold_sql})],
        ]
        for calls in turns:
            each.episode.step("\n".join(json.dumps({"tool": tool, "args": args}) for tool, args in calls))
        return TokenCounts()


class PeakMemory:
    """Largest sum of the resident memory of this process and its children, in MB; shared pages count for each."""

    def __init__(self) -> None:
        self.peak = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> "PeakMemory":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(LOOK):
            self.peak = max(self.peak, sum(map(resident, family(os.getpid()))))


def family(pid: int) -> list[int]:
    """A process and all that descend from it."""
    found = [pid]
    for parent in found:
        for path in Path(f"/proc/{parent}/task").glob("*/children"):
            try:
                found += map(int, path.read_text().split())
            except OSError:
                continue
    return found


def resident(pid: int) -> float:
    """MB that a process holds; 0 where it is gone."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
    except (OSError, IndexError):
        return 0.0


def evaluation(folder: Path, questions: int) -> EvaluationConfig:
    """300 questions of 50 generated schemas."""
    shape = [f"corpus.demo_tables=[{TABLES},{TABLES}]", "corpus.demo_schemas=[1,50]", "corpus.demo_questions=[1,6]"]
    place = [f"corpus.prepared={folder / 'prepared'}", "corpus.name=demo", "name=benchmark"]
    return load_evaluation([], [*shape, *place, f"questions={questions}", "schema=full", "backend=oracle"])


def main() -> int:
    """Measure and print; 0 where every figure is within its limit."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--questions", type=int, default=300)
    questions = parser.parse_args().questions
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        config = evaluation(folder, questions)
        copies = config.reward.counter_databases
        corpus = open_split(config.corpus, config.corpus.split, config.env.query_seconds, config.env, copies)
        tables = [row["tables"] for row in corpus.databases()]
        print(
            json.dumps({"figure": "corpus", "questions": len(corpus), "databases": len(tables), "tables": max(tables)})
        )
        started = time.perf_counter()
        with PeakMemory() as memory:
            run_evaluation(config, folder / "evaluation", Console(quiet=True), lambda config: ScriptedBackend())
        seconds = time.perf_counter() - started
        found = json.loads((folder / "evaluation" / SUMMARY).read_text())
    print(json.dumps({"figure": "episodes", **{name: found[name] for name in ("n", "equivalent", "rounds", "calls")}}))
    measured = {"seconds": round(seconds, 2), "peak_mb": round(memory.peak, 1)}
    right = found["equivalent"] == 1.0 and found["n"] == questions and min(tables) == TABLES
    ok = right and all(measured[name] <= limit for name, limit in LIMITS.items())
    print(json.dumps({**measured, "limits": LIMITS, "ok": ok}))
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
