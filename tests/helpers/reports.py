"""Run folders for the report's tests: real episodes over a real database, written by the trainer's own writers."""

import dataclasses
import json
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sqale_grpo.corpus import PreparedCorpus, prepare
from sqale_grpo.env.episode import Episode
from sqale_grpo.env.sandbox import Sandbox
from sqale_grpo.reward import score_group
from sqale_grpo.rollout.record import turns_record, write_episodes
from sqale_grpo.sampler import open_episode_database
from sqale_grpo.settings.keys import Config, CurriculumConfig, TrainConfig, TrainCorpusConfig
from sqale_grpo.settings.load import save_config
from sqale_grpo.train.metrics import update_metrics

# Each would do something if the page took it for more than text.
HOSTILE = (
    "<script>document.title = 'taken'</script>",
    "</script><script>document.title = 'taken'</script>",
    "<img src=http://example.org/x onerror=\"document.title='taken'\">",
    "\"quotes' & ampersands &lt;b&gt;",
    "nul \x00 bell \x07",
    "right-to-left \u202e desrever \u2066 isolate",
    "<!--<script> ]]> {{ 7 * 7 }} ${7 * 7} %{y}",
)
TABLES = ("customers", "orders", "items", "empty")
QUESTIONS = {
    "q0": ("How many customers are there?", "SELECT count(*) FROM customers"),
    "q1": ("What did Ada order?", "SELECT i.name FROM items i JOIN orders o ON o.item_id = i.id "
           "JOIN customers c ON c.id = o.customer_id WHERE c.name = 'Ada'"),
    "q2": (f"Which items are there? {''.join(HOSTILE)}", "SELECT name FROM items"),
}  # fmt: skip


def make_source(folder: Path) -> Path:
    """A corpus in the layout of one's own questions: a database whose values are hostile, and three questions."""
    folder.mkdir(parents=True)
    with sqlite3.connect(folder / "shop.sqlite") as connection:
        connection.executescript(
            "CREATE TABLE customers (id INTEGER PRIMARY KEY, name TEXT);"
            "CREATE TABLE items (id INTEGER PRIMARY KEY, name TEXT);"
            "CREATE TABLE orders (id INTEGER PRIMARY KEY, customer_id INT REFERENCES customers(id),"
            " item_id INT REFERENCES items(id));"
            "CREATE TABLE empty (id INTEGER PRIMARY KEY);"
            "INSERT INTO customers VALUES (1, 'Ada'), (2, NULL);"
        )
        connection.executemany("INSERT INTO items (name) VALUES (?)", [(text,) for text in HOSTILE])
        connection.execute("INSERT INTO orders VALUES (1, 1, 1), (2, 1, 2), (3, 2, 3)")
    connection.close()
    lines = [
        json.dumps({"question_id": name, "db_id": "shop", "question": text, "sql": sql})
        for name, (text, sql) in QUESTIONS.items()
    ]
    (folder / "questions.jsonl").write_text("\n".join(lines))
    return folder


def make_config(folder: Path, name: str, **train: Any) -> Config:
    """A run over the prepared questions in ``folder``: 2 questions x 4 candidates an update."""
    train = {"questions_per_update": 2, "candidates": 4, "updates": 8, "anchor_updates": 3, **train}
    return dataclasses.replace(
        Config(),
        name=name,
        output=str(folder / "runs"),
        corpus=TrainCorpusConfig(name="jsonl", prepared=str(folder / "prepared")),
        curriculum=CurriculumConfig(warmup_updates=2, ramp_updates=4, gate_updates=3),
        train=TrainConfig(**train),
    )


def scripts(question: str, update: int) -> list[list[str]]:
    """The completions of four candidates: right, wrong but executable, one that errs and looks around, and nothing."""
    sql = QUESTIONS[question][1]
    call = lambda tool, **args: json.dumps({"tool": tool, "args": args})  # noqa: E731
    thought = f"update {update}: {HOSTILE[update % len(HOSTILE)]}\n</think>\n"
    return [
        [
            thought + call("list_tables"),
            thought + call("describe_table", table_name="customers") + call("sample_rows", table_name="items"),
            thought + call("run_query", sql=sql),
            thought + call("submit_sql", sql=sql),
        ],
        [thought + call("run_query", sql="SELECT id FROM orders"), call("submit_sql", sql="SELECT id FROM orders")],
        [
            call("run_query", sql="SELECT missing FROM nowhere"),
            call("distinct_values", table_name="customers", column_name="name"),
            call("submit_sql", sql=f"SELECT missing FROM customers -- {HOSTILE[0]}"),
        ],
        [HOSTILE[1], *["no call"] * 6],
    ]


def play_update(corpus: PreparedCorpus, update: int, questions: Sequence[str]) -> list[dict[str, Any]]:
    """The records of an update: the scripted candidates of each question, played and scored."""
    records: list[dict[str, Any]] = []
    for name in questions:
        question = corpus.question(list(QUESTIONS).index(name))
        with open_episode_database(corpus.database("shop"), TABLES) as database, Sandbox(database.path) as sandbox:
            episodes = []
            for candidate, completions in enumerate(scripts(name, update)):
                episode = Episode(question.text, sandbox, gated=candidate == 0 and update == 0)
                for completion in completions:
                    if episode.finished is None:
                        episode.step(completion)
                assert episode.finished is not None
                episodes.append(episode)
            answers = [episode.finished.sql for episode in episodes if episode.finished]
            outcomes = score_group(question, database.path, answers, sandbox)
        mean = sum(outcome.reward for outcome in outcomes) / len(outcomes)
        for candidate, (episode, outcome) in enumerate(zip(episodes, outcomes, strict=True)):
            assert episode.finished is not None
            records.append(
                {
                    "update": update,
                    "question_id": name,
                    "candidate": candidate,
                    "db_id": question.db_id,
                    "corpus": "jsonl",
                    "difficulty": None,
                    "bucket": ("short", "medium", "long")[list(QUESTIONS).index(name)],
                    "question": question.text,
                    "gold_sql": question.gold_sql,
                    "gold_tables": list(question.gold_tables),
                    "tables": list(TABLES),
                    "gated": episode.gated,
                    "turns": turns_record(episode),
                    "opened_tables": sorted(episode.opened_tables),
                    "sql": episode.finished.sql,
                    "ended_by": episode.finished.ended_by,
                    "tier": outcome.tier,
                    "reward": outcome.reward,
                    "f1": outcome.f1,
                    "join_share": outcome.join_share,
                    "agrees": outcome.agrees,
                    "error": outcome.error,
                    "copy": outcome.copy,
                    "message": outcome.message,
                    "advantage": outcome.reward - mean,
                    "prompt_tokens": 100,
                    "completion_tokens": 50,
                    "written_tokens": 40 + update,
                    "rounds": len(episode.turns),
                    "calls": sum(len(turn.calls) for turn in episode.turns),
                }
            )
    return records


def prepared(folder: Path) -> PreparedCorpus:
    """The prepared questions, where ``make_config`` looks for them."""
    return prepare("jsonl", make_source(folder / "source"), folder / "prepared" / "jsonl-train", progress=False)


def add_update(folder: Path, corpus: PreparedCorpus, update: int) -> list[dict[str, Any]]:
    """Play one update into a run's folder, as the trainer writes it: its episodes first, then its metrics."""
    names = list(QUESTIONS)
    records = play_update(corpus, update, [names[update % 3], names[(update + 1) % 3]])
    columns = [{k: v for k, v in record.items() if k not in ("rounds", "calls")} for record in records]
    write_episodes(folder / "episodes", update, columns)
    measured = {"loss": 0.1, "kl": 0.01 * (update % 3), "entropy": 0.5, "grad_norm": 0.2, "reward": 1.0}
    stages = {"seconds/generate": 2.0, "seconds/backward": 1.0, "seconds/update": 3.0}
    line = {"update": update, **measured, **stages, **update_metrics(records, 4)}
    with (folder / "metrics.jsonl").open("a") as file:
        file.write(json.dumps(line) + "\n")
    return records


def make_run(folder: Path, corpus: PreparedCorpus, name: str, updates: int, **train: Any) -> Path:
    """A run of ``updates`` updates in ``folder/runs/name``."""
    config = make_config(folder, name, **train)
    run = folder / "runs" / name
    run.mkdir(parents=True)
    save_config(config, run / "config.yaml")
    for update in range(updates):
        add_update(run, corpus, update)
    return run
