"""A run that is killed at any moment goes on where it was: nothing is lost, nothing is there twice."""

import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from sqale_grpo.corpus import prepare
from tests.conftest import ROOT
from tests.helpers.corpora import database, json_lines, sqale_folder, sqale_question, sqale_schema

RESULT = ("index.parquet", "measured.parquet", "databases.parquet", "dropped.jsonl", "prepared.json")
SLOW = (
    "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < {}) SELECT max(x) FROM n, t WHERE t.a = 1"
)


def slow_sqale(folder: Path) -> Path:
    """Thirty databases in three shards, two questions each, a hundredth of a second a question."""
    questions = [sqale_question(n, f"db{n // 2}", SLOW.format(15_000 + n)) for n in range(60)]
    schemas = [sqale_schema(f"db{i}", "CREATE TABLE t (a INT)", {"t": [{"a": 1}]}) for i in range(30)]
    return sqale_folder(folder, questions, [schemas[:10], schemas[10:20], schemas[20:]])


def slow_jsonl(folder: Path) -> Path:
    """One database for all questions."""
    database(folder / "one.sqlite", "CREATE TABLE t (a INT); INSERT INTO t VALUES (1);")
    json_lines(
        folder / "questions.jsonl",
        ({"db_id": "one", "question": f"{n}?", "sql": SLOW.format(300 + n)} for n in range(1000)),
    )
    return folder


def judged(out: Path) -> int:
    """How many questions the work in progress holds a verdict of; -1 while there is nothing to read."""
    try:
        with closing(sqlite3.connect(out / "staging.work")) as connection:
            return connection.execute("SELECT count(*) FROM questions WHERE judged = 1").fetchone()[0]
    except sqlite3.Error:
        return -1


def killed(command: list[str], out: Path, enough: int) -> int:
    """Start the command, end it with kill -9 once ``enough`` questions are judged; how many were."""
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while (out / "staging.work").exists() is False or judged(out) < enough:
        assert process.poll() is None, "it ended before it could be killed"
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    return judged(out)


@pytest.mark.long
@pytest.mark.parametrize(("corpus", "make"), [("sqale", slow_sqale), ("jsonl", slow_jsonl)])
def test_killed_again_and_again(tmp_path: Path, corpus: str, make: Callable[[Path], Path]) -> None:
    source, out = make(tmp_path / "in"), tmp_path / "out"
    command = [sys.executable, "-m", "sqale_grpo.corpus", "prepare", "--corpus", corpus, "--workers", "2"]
    command += ["--source", str(source), "--out", str(out)]
    early = killed(command, out, 0)
    half_way = killed(command, out, max(1, early + 1))
    later = killed(command, out, half_way + 1)
    assert 0 <= early < half_way < later
    resumed = prepare(corpus, source, out, workers=2, progress=False)
    undisturbed = prepare(corpus, source, tmp_path / "whole", workers=1, progress=False)
    assert later < len(resumed) == len(undisturbed)
    for name in RESULT:
        assert (out / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name
    assert sorted(path.name for path in out.iterdir()) == sorted([".lock", "databases", *RESULT])
    assert len(list((out / "databases").iterdir())) == len(undisturbed.databases())


@pytest.mark.full
def test_stopped_from_the_keyboard(tmp_path: Path) -> None:
    """One line, no traceback, and the same command goes on."""
    source, out = slow_jsonl(tmp_path / "in"), tmp_path / "out"
    command = [sys.executable, "-m", "sqale_grpo.corpus", "prepare", "--corpus", "jsonl", "--workers", "1"]
    command += ["--source", str(source), "--out", str(out)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while judged(out) < 1:
        assert process.poll() is None, "it ended before it could be stopped"
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    said, shown = process.communicate(timeout=120)  # a busy machine is no fault
    assert process.returncode == 130 and said == ""
    assert shown.splitlines()[-1] == "stopped; the same command goes on with what is left" and "Traceback" not in shown
    assert len(prepare("jsonl", source, out, workers=1, progress=False)) == 1000


def test_killed_between_the_marker_and_the_end(tmp_path: Path) -> None:
    source = slow_sqale(tmp_path / "in")
    prepare("sqale", source, tmp_path / "out", workers=1, progress=False, limit=2)
    (tmp_path / "out/staging.work").touch()
    assert len(prepare("sqale", source, tmp_path / "out", progress=False, limit=2)) == 2
    assert not (tmp_path / "out/staging.work").exists()


@pytest.mark.full
def test_two_at_once_share_one_preparation(tmp_path: Path) -> None:
    source = slow_sqale(tmp_path / "in")
    command = [
        sys.executable,
        "-m",
        "sqale_grpo.corpus",
        "prepare",
        "--corpus",
        "sqale",
        "--workers",
        "1",
        "--limit",
        "20",
    ]
    command += ["--source", str(source), "--out", str(tmp_path / "out")]
    both = [subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(2)]
    outputs = [process.communicate(timeout=120) for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert sum(b"running gold queries" in shown for _, shown in outputs) == 1
    assert all(b"20 questions of sqale" in said for said, _ in outputs)
