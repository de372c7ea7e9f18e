"""The parts of an experiment: what the configuration says reaches the episodes."""

import json
import sqlite3
from contextlib import ExitStack
from pathlib import Path

import pytest
from transformers import PreTrainedTokenizerBase

from sqale_grpo.corpus import PreparedCorpus, prepare
from sqale_grpo.env.chance import key_int
from sqale_grpo.env.sandbox import default_pool
from sqale_grpo.rollout.group import episode_settings
from sqale_grpo.rollout.world import open_worlds
from sqale_grpo.settings.check import ConfigError
from sqale_grpo.settings.load import load_config
from sqale_grpo.train.experiment import make_experiment
from sqale_grpo.train.start_checks import check_inputs


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> PreparedCorpus:
    source = tmp_path_factory.mktemp("mine")
    with sqlite3.connect(source / "shop.sqlite") as connection:
        connection.execute("CREATE TABLE shops (id INTEGER PRIMARY KEY)")
    connection.close()
    return prepare("jsonl", questions(source, 40), source / "prepared", progress=False)


def questions(source: Path, count: int, text: str = "How many over") -> Path:
    rows = [
        {"db_id": "shop", "question": f"{text} {i}?", "sql": f"SELECT count(*) FROM shops WHERE id > {i}"}
        for i in range(count)
    ]
    (source / "questions.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    return source


@pytest.mark.parametrize(("count", "candidates"), [(18, 8), (4, 36)])
@pytest.mark.parametrize("processes", [1, 2, 3, 4, 6, 8, 9])
def test_the_episodes_of_all_processes_are_those_of_one(
    corpus: PreparedCorpus, tokenizer: PreTrainedTokenizerBase, count: int, candidates: int, processes: int
) -> None:
    """Whole groups or straddling ones: each (question, candidate) once, its gate and draw the same."""
    config = load_config(
        [], [f"train.questions_per_update={count}", f"train.candidates={candidates}", "curriculum.gate_updates=9"]
    )
    experiment = make_experiment(config, corpus.directory, corpus, list(range(len(corpus))), tokenizer)
    batch = [index for index in experiment.batch(4) for _ in range(candidates)]
    share = 144 // processes
    slices = [batch[rank * share : (rank + 1) * share] for rank in range(processes)]
    jobs = [job for rank, indices in enumerate(slices) for job in experiment.jobs(indices, 4, rank)]
    assert jobs == experiment.jobs(batch, 4, 0)
    assert len({(job.index, job.candidate) for job in jobs}) == 144
    assert 0 < sum(job.gated for job in jobs) < 144


def test_a_question_that_comes_twice_in_an_update_samples_other_tokens(
    tmp_path: Path, tokenizer: PreTrainedTokenizerBase
) -> None:
    """Fewer questions of a bucket than its share of the batch: two groups of one question, each a sample of its own."""
    with sqlite3.connect(tmp_path / "shop.sqlite") as connection:
        connection.execute("CREATE TABLE shops (id INTEGER PRIMARY KEY)")
    connection.close()
    sqls = ["SELECT count(*) FROM shops"] * 13 + ["SELECT count(*) FROM shops WHERE id IN (SELECT id FROM shops)"] * 11
    rows = [{"db_id": "shop", "question": f"How many, {n}?", "sql": sql} for n, sql in enumerate(sqls)]
    (tmp_path / "questions.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    corpus = prepare("jsonl", tmp_path, tmp_path / "prepared", progress=False)
    config = load_config([], ["train.candidates=4", "curriculum.gate_updates=0"])
    experiment = make_experiment(config, corpus.directory, corpus, list(range(len(corpus))), tokenizer)
    batch = experiment.batch(3)
    assert len(batch) == 18 and len(set(batch)) == 13, "the short bucket holds fewer questions than the batch takes"
    indices = [index for index in batch for _ in range(4)]
    jobs = experiment.jobs(indices, 3, 0)
    settings = episode_settings(config, "sampled")
    with ExitStack() as stack:
        opened = open_worlds(corpus, jobs, settings, stack)
    assert len({each.key for each in opened}) == 72, "no two episodes share a random stream"
    assert {job.repeat for job in jobs} > {0}
    # The first group of a question has the stream that it has where the question comes once.
    assert all(
        each.key == key_int("tokens", 42, 3, each.group.question.question_id, each.job.candidate)
        for each in opened
        if not each.job.repeat
    )
    for processes in (2, 3, 8):
        share = len(indices) // processes
        parts = [experiment.jobs(indices[rank * share : (rank + 1) * share], 3, rank) for rank in range(processes)]
        assert sum(parts, []) == jobs


def test_a_resume_meets_the_questions_that_the_run_began_with(corpus: PreparedCorpus, tmp_path: Path) -> None:
    config = load_config([])
    check_inputs(config, corpus, tmp_path, resume=False)
    check_inputs(config, corpus, tmp_path, resume=True)
    (tmp_path / "shop.sqlite").write_bytes((corpus.directory.parent / "shop.sqlite").read_bytes())
    other = prepare("jsonl", questions(tmp_path, 40, "Count those over"), tmp_path / "prepared", progress=False)
    with pytest.raises(ConfigError, match=r"the corpus \(.*prepared\) changed since the run in"):
        check_inputs(config, other, tmp_path, resume=True)


def test_the_environments_keys_reach_the_episodes() -> None:
    overrides = ["env.workers=3", "env.max_rows=7", "env.memory_mb=64", "env.tool_turns=2", "env.cell_chars=9"]
    settings = episode_settings(load_config([], [*overrides, "env.query_seconds=2.5"]), "full")
    assert settings.workers.homes == 3
    assert (settings.limits.seconds, settings.limits.rows, settings.limits.memory_mb) == (2.5, 7, 64)
    assert (settings.episode.tool_turns, settings.episode.cell_chars) == (2, 9)
    again = episode_settings(load_config([], ["env.workers=3"]), "sampled")
    assert again.workers is settings.workers
    assert episode_settings(load_config([]), "sampled").workers is default_pool()
