"""How long the report of a whole run takes, how large its page is, and how soon a browser can use it.

    python benchmarks/report.py [--updates 1800] [--keep FOLDER]

A run of 1,800 updates x 144 episodes is written with the trainer's writer: scripted episodes over the demo corpus'
databases, their thinking as long as a 2B policy's (about 1,500 tokens an episode). Writing it is not measured; the
report is, in a process of its own, then the page in Chromium where there is one. Prints a JSON line a figure and a
last one with "ok".
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sqale_grpo.corpus import PreparedCorpus, prepare
from sqale_grpo.env.episode import Episode
from sqale_grpo.env.sandbox import Sandbox
from sqale_grpo.rollout.record import turns_record, write_episodes
from sqale_grpo.sampler import open_episode_database
from sqale_grpo.settings.load import load_config, save_config
from sqale_grpo.settings.run_folder import EPISODES

ROOT = Path(__file__).resolve().parent.parent

LIMITS = {"seconds": 60.0, "peak_mb": 2_000.0, "page_mb": 30.0, "usable_seconds": 2.0}
QUESTIONS, CANDIDATES = 18, 8
SCRIPTED = 96  # groups that are played; the run's are copies of them under other updates and numbers
TIERS = ("equivalent", "executable", "parsable", "invalid")
REWARDS = {"equivalent": 3.0, "executable": 1.3, "parsable": 0.5, "invalid": 0.0}

MEASURED = """
import json, resource, sys, time
from pathlib import Path
start = time.perf_counter()
from sqale_grpo.report.page import write_report
page = write_report([Path(sys.argv[1])], Path(sys.argv[2]))
seconds = time.perf_counter() - start
own = resource.getrusage(resource.RUSAGE_SELF)
print(json.dumps({"seconds": seconds, "cpu_seconds": own.ru_utime + own.ru_stime,
                  "peak_mb": own.ru_maxrss / 1024, "page_mb": page.stat().st_size / 1e6}))
"""


def scripted_group(corpus: PreparedCorpus, index: int, chance: random.Random) -> list[dict[str, Any]]:
    """The records of one group, played for real: candidates look around, try queries and submit."""
    question = corpus.question(index)
    source = corpus.database(question.db_id)
    with Sandbox(source) as whole:
        names = list(whole.schema.tables)
    gold = list(question.gold_tables)
    others = [name for name in names if name not in gold]
    tables = gold + chance.sample(others, min(len(others), 24))
    records = []
    with open_episode_database(source, tables) as database, Sandbox(database.path) as sandbox:
        for candidate in range(CANDIDATES):
            episode = Episode(question.text, sandbox)
            answer = question.gold_sql if candidate % 2 else f"SELECT * FROM {tables[0]} LIMIT {candidate + 1}"
            for completion in completions(tables, answer, chance):
                if episode.finished is None:
                    episode.step(completion)
            assert episode.finished is not None
            records.append(
                {
                    "question_id": question.question_id,
                    "db_id": question.db_id,
                    "corpus": "demo",
                    "difficulty": question.difficulty,
                    "question": question.text,
                    "gold_sql": question.gold_sql,
                    "gold_tables": gold,
                    "tables": tables,
                    "turns": turns_record(episode),
                    "opened_tables": sorted(episode.opened_tables),
                    "sql": episode.finished.sql,
                    "ended_by": episode.finished.ended_by,
                }
            )
    return records


def completions(tables: list[str], answer: str, chance: random.Random) -> Iterator[str]:
    """Six turns with thinking, of as many words as an episode of 1,500 written tokens has."""
    calls = [
        {"tool": "list_tables", "args": {}},
        {"tool": "describe_table", "args": {"table_name": tables[0]}},
        {"tool": "sample_rows", "args": {"table_name": tables[0], "limit": 5}},
        {"tool": "foreign_keys", "args": {}},
        {"tool": "run_query", "args": {"sql": answer}},
        {"tool": "submit_sql", "args": {"sql": answer}},
    ]
    words = ["table", "column", "join", "the", "question", "asks", "for", "key", "value", "check", "then", *tables]
    for call in calls:
        thought = " ".join(f"{chance.choice(words)}{chance.randrange(1000)}" for _ in range(120))
        yield f"{thought}\n</think>\n{json.dumps(call)}"


def write_run(folder: Path, corpus: PreparedCorpus, updates: int) -> None:
    """The run folder: configuration, metrics and the episodes of every update."""
    config = load_config(
        [ROOT / "configs" / "demo.yaml"],
        [f"corpus.prepared={corpus.directory.parent}", "name=large", f"train.updates={updates}"],
    )
    folder.mkdir(parents=True)
    save_config(config, folder / "config.yaml")
    chance = random.Random(0)
    pool = [scripted_group(corpus, chance.randrange(len(corpus)), chance) for _ in range(SCRIPTED)]
    with (folder / "metrics.jsonl").open("w") as metrics:
        for update in range(updates):
            records = list(update_records(pool, update, updates, chance))
            write_episodes(folder / EPISODES, update, records)
            share = {f"{tier}_rate": sum(r["tier"] == tier for r in records) / len(records) for tier in TIERS}
            line = {"update": update, "loss": 0.1, "kl": chance.random() / 100, "entropy": 0.4, "tool_calls": 6.0}
            stages = {f"seconds/{stage}": chance.uniform(1, 9) for stage in ("generate", "forward", "backward")}
            metrics.write(json.dumps({**line, **share, **stages, "rounds": 6.0, "written_tokens": 1500.0}) + "\n")


def update_records(
    pool: list[list[dict[str, Any]]], update: int, updates: int, chance: random.Random
) -> Iterator[dict[str, Any]]:
    """The records of an update: groups of the pool, their outcomes drawn so that they improve over the run."""
    right = 0.1 + 0.4 * update / updates
    for number in range(QUESTIONS):
        group = chance.choice(pool)
        tiers = chance.choices(TIERS, (right, 0.3, 0.3, 0.7 - right), k=CANDIDATES)
        mean = sum(REWARDS[tier] for tier in tiers) / CANDIDATES
        for candidate, (record, tier) in enumerate(zip(group, tiers, strict=True)):
            yield record | {
                "update": update,
                "question_id": f"{record['question_id']}.{number}",
                "candidate": candidate,
                "bucket": ("short", "medium", "long", "very_long")[number % 4],
                "gated": update < 80,
                "tier": tier,
                "reward": REWARDS[tier],
                "advantage": REWARDS[tier] - mean,
                "f1": 0.5,
                "join_share": 0.5,
                "agrees": False,
                "error": None,
                "prompt_tokens": 900,
                "completion_tokens": 3_000,
                "written_tokens": 1_500,
            }


def usable_seconds(page: Path) -> float | None:
    """Seconds from opening the page until the list, the filters and the first chart are there; None: no browser."""
    from playwright.sync_api import sync_playwright

    sys.path.insert(0, str(ROOT))  # a program sees its own folder, and the tests lie beside it
    from tests.report.conftest import FLAGS, chromium

    with sync_playwright() as playwright:
        program = chromium(playwright)
        if program is None:
            return None
        browser = playwright.chromium.launch(executable_path=program, args=FLAGS)
        times = []
        for _ in range(3):
            tab = browser.new_page(viewport={"width": 1280, "height": 900})
            start = time.perf_counter()
            tab.goto(page.as_uri(), wait_until="commit")
            tab.wait_for_selector("html[data-ready=true]", timeout=120_000)
            tab.wait_for_selector("[data-chart='0'] canvas")
            times.append(time.perf_counter() - start)
            tab.close()
        browser.close()
        # Whatever else the machine does can only add to it.
        return min(times)


def report(**figures: object) -> None:
    """One JSON line, floats rounded."""
    print(json.dumps({k: round(v, 3) if isinstance(v, float) else v for k, v in figures.items()}), flush=True)


def main() -> int:
    """Measure everything; 0 if every figure keeps its limit."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--updates", type=int, default=1_800, help="of the run (default: %(default)s)")
    parser.add_argument("--keep", type=Path, help="folder for the run and its page; a run there is used again")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        place = given.keep or Path(name)
        run, page = place / "run", place / "report.html"
        if not run.is_dir():
            start = time.perf_counter()
            corpus = prepare("demo", None, place / "prepared" / "demo-train", progress=False)
            write_run(run, corpus, given.updates)
            size = sum(file.stat().st_size for file in run.rglob("*")) / 1e6
            report(updates=given.updates, written_mb=size, write_seconds=time.perf_counter() - start)
        program = [sys.executable, "-c", MEASURED, str(run), str(page)]
        done = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, check=True)
        figures = json.loads(done.stdout)
        seconds = usable_seconds(page)
    if seconds is None:
        report(note="no Chromium here: usable_seconds was not measured (`make browser` installs one)")
    else:
        figures["usable_seconds"] = seconds
    ok = all(figures[name] <= limit for name, limit in LIMITS.items() if name in figures)
    report(benchmark="report", episodes=given.updates * QUESTIONS * CANDIDATES, **figures, limits=LIMITS, ok=ok)
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
