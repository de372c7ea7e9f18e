"""What the machine does to a run is never a reward: the candidate is void, the rest is as it would have been."""

import json
import random
import shutil
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sqale_grpo.corpus.prepared import INDEX
from sqale_grpo.reward import Outcome
from sqale_grpo.reward.score import void
from sqale_grpo.train.metrics import update_metrics
from sqale_grpo.train.rewards import execution_reward, void_together
from tests.helpers.launch import Starter
from tests.helpers.runs import SHORT, arguments, episodes, metrics, train

UPDATES = 5
# So small a step changes no weight: what an update's void candidates would have taught changes no later update.
STEPS = [f"train.updates={UPDATES}", "train.learning_rate=1e-30", *SHORT]


@pytest.fixture(scope="module")
def calm(starter: Starter, work: Path) -> Path:
    """The run to which nothing happened."""
    return train(starter, work, "calm", *STEPS)


def test_a_void_outcome_has_no_reward_and_a_gold_that_fails_makes_a_whole_group_void() -> None:
    right = Outcome("equivalent", 3.0)
    broken, golden = void("killed"), void("the gold query does not run", "not_run")
    assert execution_reward([], [], [right, broken]) == [3.0, None]
    assert void_together([right, broken]) == [right, broken]
    assert [each.tier for each in void_together([right, golden])] == ["void", "void"]


def test_a_void_candidate_is_counted_and_makes_no_spread() -> None:
    record = {
        "tier": "invalid",
        "reward": 0.0,
        "rounds": 1,
        "calls": 1,
        "gated": False,
        "copy": None,
        "written_tokens": 1,
        "prompt_tokens": 1,
        "completion_tokens": 1,
        "tables": [],
        "ended_by": "no_answer",
        "bucket": "short",
    }
    gone = {**record, "tier": "void", "reward": None, "ended_by": "void"}
    found = update_metrics([record, gone, {**record, "reward": 1.0}, record], 2)  # fmt: skip
    assert (found["void_rate"], found["ended_by/void"], found["zero_variance_groups"]) == (0.25, 0.25, 0.5)


def with_a_broken_gold(prepared: Path, out: Path, question: str) -> Path:
    """A copy of a prepared corpus in which one question's gold query does not run."""
    shutil.copytree(prepared, out)
    index = out / "demo-train" / INDEX
    rows = pq.read_table(index).to_pylist()
    for row in rows:
        if row["question_id"] == question:
            row["gold_sql"] = "SELECT nothing FROM nowhere"
    pq.write_table(pa.Table.from_pylist(rows, pq.read_schema(index)), index, row_group_size=256)
    return out


@pytest.mark.long
def test_a_gold_that_fails_voids_its_group_and_ends_neither_the_run_nor_a_resumed_one(
    starter: Starter, work: Path, calm: Path
) -> None:
    before = episodes(calm)
    question = next(row for row in before if row["update"] == 1)["question_id"]
    prepared = with_a_broken_gold(work / "prepared", work / "broken", question)
    places = [f"corpus.prepared={prepared}", *STEPS]
    folder = train(starter, work, "broken-gold", *places)
    first = episodes(folder)
    for update in range(2, UPDATES + 1):  # as if it had been killed after the first update
        shutil.rmtree(folder / f"checkpoint-{update}")
    train(starter, work, "broken-gold", *places, "--resume")
    rows = episodes(folder)
    for row, other in zip(rows, first, strict=True):  # a failure names the file of its own process
        assert {**row, "error": None, "message": None} == {**other, "error": None, "message": None}
    lost = [row for row in rows if row["question_id"] == question]
    assert lost and len(rows) == len(before)
    for row in lost:
        assert (row["tier"], row["reward"], row["advantage"]) == ("void", None, 0.0)
        assert "gold query" in row["error"] and question in row["error"]
    for row, other in zip(rows, before, strict=True):
        if row["question_id"] != question:
            assert row == other
    for update, line in enumerate(metrics(folder)):
        own = [row for row in rows if row["update"] == update]
        assert line["void_rate"] == sum(row["tier"] == "void" for row in own) / len(own)
        known = [row["reward"] for row in own if row["reward"] is not None]
        assert line["reward"] == pytest.approx(sum(known) / len(known), abs=1e-5)
    said = (work / "broken-gold.log").read_text()
    assert "4 of 12 candidates are void" in said


def kill_workers(run: int, ended: Callable[[], bool], chance: random.Random) -> list[int]:
    """Kill one of a run's workers and builders after the other, at moments of chance, until it has ended; their ids.

    Each may live for half a second: on a machine that lets none start, a run ends with a sentence, and that is right.
    """
    killed: list[int] = []
    while not ended():
        with suppress(psutil.Error):
            workers = [
                child
                for child in psutil.Process(run).children(recursive=True)
                if any("_worker import main" in word or "env.worker import" in word for word in child.cmdline())
                and time.time() - child.create_time() > 0.5
            ]
            if workers:
                victim = chance.choice(workers)
                victim.kill()
                killed.append(victim.pid)
        time.sleep(chance.uniform(0.01, 0.15))
    return killed


@pytest.mark.slow
def test_a_run_whose_workers_are_killed_at_random_gives_the_same_rewards(
    starter: Starter, work: Path, calm: Path
) -> None:
    log = work / "killed-workers.log"
    run = starter.start(arguments(work, "killed-workers", *STEPS), log)
    over = threading.Event()
    killed: list[int] = []
    killer = threading.Thread(target=lambda: killed.extend(kill_workers(run, over.is_set, random.Random(5))))
    killer.start()
    try:
        status = starter.wait(run)
    finally:
        over.set()
        killer.join()
    assert status == 0, log.read_text()[-5000:]
    before, rows = episodes(calm), episodes(work / "runs" / "killed-workers")
    assert len(killed) >= 5 and len(rows) == len(before)
    voids = [row for row in rows if row["tier"] == "void"]
    print(json.dumps({"killed": len(killed), "void": len(voids), "episodes": len(rows)}))
    for start in range(0, len(rows), 4):
        group = rows[start : start + 4]
        for row, other in zip(group, before[start : start + 4], strict=True):
            if row["tier"] == "void":
                assert row["reward"] is None and row["advantage"] == 0.0 and row["error"]
                continue
            same = ["turns", "sql", "tier", "f1", "join_share"]
            if all(each["tier"] != "void" for each in group):  # a lost member may have been one that agreed
                same += ["reward", "agrees", "advantage"]
            assert [row[name] for name in same] == [other[name] for name in same]
