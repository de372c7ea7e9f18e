"""The verdicts beside the benchmarks' own scripts, where their paths are given; else beside plain sqlite3.

``SQALE_BIRD_SCRIPT`` names BIRD's ``evaluation.py`` or mini-dev's ``evaluation_ex.py``, ``SQALE_EHRSQL_SCRIPT``
EHRSQL's ``evaluate.py``; both need the package ``func_timeout``.
"""

import importlib.util
import inspect
import json
import os
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from sqale_grpo.reward import bird_verdict, ehrsql_verdict
from sqale_grpo.reward.ehrsql import Answered, abstention_scores
from tests.helpers.official import PAIRS, SETUP, fetched, mutated_pairs

BIRD, EHRSQL = os.environ.get("SQALE_BIRD_SCRIPT"), os.environ.get("SQALE_EHRSQL_SCRIPT")
DRIVERS = ("psycopg2", "pymysql")  # mini-dev's script imports them, and calls neither on SQLite
MUTATIONS = 160


def script(path: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    pytest.importorskip("func_timeout")
    monkeypatch.syspath_prepend(str(Path(path).parent))
    for name in DRIVERS:
        if importlib.util.find_spec(name) is None:
            monkeypatch.setitem(sys.modules, name, ModuleType(name))
    spec = importlib.util.spec_from_file_location("benchmark_script", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def database(folder: Path) -> Path:
    path = folder / "d.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(SETUP)
    return path


@pytest.mark.skipif(not BIRD, reason="SQALE_BIRD_SCRIPT names no script")
def test_birds_verdict_is_its_scripts(shared_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    execute = script(str(BIRD), monkeypatch).execute_model
    dialect = ["SQLite"] if len(inspect.signature(execute).parameters) == 6 else []

    def theirs(gold: str, answer: str | None, path: Path) -> bool:  # it reads an answer that is missing as a blank
        return execute(" " if answer is None else answer, gold, str(path), 0, 30.0, *dialect)["res"] == 1

    path = database(tmp_path)
    for pair in PAIRS:
        assert theirs(pair.gold, pair.answer, path) is pair.bird, pair.why
    compare(mutated_pairs(shared_data, MUTATIONS), bird_verdict, theirs)


@pytest.mark.skipif(not EHRSQL, reason="SQALE_EHRSQL_SCRIPT names no script")
def test_ehrsqls_verdict_is_its_scripts(shared_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    module = script(str(EHRSQL), monkeypatch)

    def theirs(gold: str, answer: str | None, path: Path) -> bool:
        answer = "n/a" if answer is None else module.post_process_sql(answer)
        asked = module.execute_query(module.post_process_sql(gold), answer, SimpleNamespace(timeout=60, db_path=path))
        return asked["real"] == asked["pred"]

    path = database(tmp_path)
    for pair in PAIRS:
        assert theirs(pair.gold, pair.answer, path) is pair.ehrsql, pair.why
    compare(mutated_pairs(shared_data, MUTATIONS), ehrsql_verdict, theirs)


def compare(pairs, ours: Callable[..., bool], theirs: Callable[..., bool]) -> None:
    """The same verdict on every mutation, and each verdict somewhere."""
    found = Counter()
    for kind, path, gold, answer in pairs:
        verdict = ours(gold, path, answer)
        assert verdict == theirs(gold, answer, path), (kind, path.stem, gold, answer)
        found[verdict] += 1
    assert min(found[True], found[False]) > MUTATIONS // 20


@pytest.mark.skipif(not EHRSQL, reason="SQALE_EHRSQL_SCRIPT names no script")
def test_the_scores_with_abstention_are_its_scripts(tmp_path: Path):
    pytest.importorskip("func_timeout")
    golds = ["select 1", "select 2", "select 3", "null", "null", "select 4"]
    answers = ["select 1", "SELECT 9", "null", "null", "select 5", "select 4"]
    asked = [
        Answered(gold != "null", answer != "null", gold == answer) for gold, answer in zip(golds, answers, strict=True)
    ]
    questions = [{"id": str(number), "query": gold} for number, gold in enumerate(golds)]
    (tmp_path / "data.json").write_text(json.dumps(questions))
    (tmp_path / "pred.json").write_text(json.dumps({str(number): answer for number, answer in enumerate(answers)}))
    files = ["--data_file", "data.json", "--pred_file", "pred.json", "--db_path", str(database(tmp_path))]
    told = [*files, "--num_workers", "1", "--ndigits", "6", "--out_file", "out.json"]
    subprocess.run([sys.executable, str(EHRSQL), *told], cwd=tmp_path, check=True)
    published = json.loads((tmp_path / "out.json").read_text())
    assert {name: round(100 * value, 4) for name, value in abstention_scores(asked).items()} == pytest.approx(
        {name: round(value, 4) for name, value in published.items()}, abs=2e-4
    )


@pytest.mark.full
def test_birds_verdict_on_mutations_of_real_queries_is_that_of_plain_sqlite3(shared_data: Path):
    def rule(gold: str, answer: str, path: Path) -> bool:
        rows, right = fetched(path, answer), fetched(path, gold)
        return rows is not None and right is not None and set(rows) == set(right)

    compare(mutated_pairs(shared_data, MUTATIONS // 2), bird_verdict, rule)
