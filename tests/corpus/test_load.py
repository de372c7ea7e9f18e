"""What is kept does not depend on how busy the machine is."""

import multiprocessing
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sqale_grpo.corpus import prepare
from tests.helpers.corpora import GOOD, dropped, own_questions

BUSY = 8  # processes
# Nothing of it is kept in memory, which would be another limit.
COUNT = """
WITH c(x) AS (VALUES(1) UNION ALL SELECT x + 1 FROM c WHERE x < {}) SELECT count(*) FROM c WHERE (SELECT 1 FROM City)
"""
# About ten steps a number: a quarter of what a query may take, one that passes it, and one without an end.
QUESTIONS = [GOOD, COUNT.format(8_000_000), COUNT.format(60_000_000), COUNT.format("x + 1"), f"{GOOD} LIMIT 1"]


def spin() -> None:
    while True:
        sum(range(1000))


@contextmanager
def load(processes: int) -> Iterator[None]:
    """So many processes that do nothing but use a core."""
    context = multiprocessing.get_context("spawn")
    busy = [context.Process(target=spin, daemon=True) for _ in range(processes)]
    for each in busy:
        each.start()
    try:
        yield
    finally:
        for each in busy:
            each.kill()
            each.join()


@pytest.mark.slow
def test_a_busy_machine_keeps_the_same_questions_byte_for_byte(tmp_path: Path) -> None:
    source = own_questions(tmp_path / "in", QUESTIONS)
    prepare("jsonl", source, tmp_path / "idle", progress=False, workers=1)
    with load(BUSY):
        prepare("jsonl", source, tmp_path / "busy", progress=False, workers=1)
    assert dropped(tmp_path / "idle") == dropped(tmp_path / "busy") == dict.fromkeys(("q2", "q3"), "gold times out")
    idle, busy = (tmp_path / name / "index.parquet" for name in ("idle", "busy"))
    assert idle.read_bytes() == busy.read_bytes()
