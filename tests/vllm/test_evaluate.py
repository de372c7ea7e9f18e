"""An evaluation whose model is in vLLM: the taught policy answers, and a second start plays nothing again."""

import json

import pytest
import torch
from rich.console import Console

from sqale_grpo.evaluate.records import read_records
from sqale_grpo.evaluate.runner import run_evaluation
from sqale_grpo.settings.evaluation import load_evaluation
from tests.vllm.taught import PROMPTS, QUESTIONS, shop_database, taught_policy


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Folder of the taught questions as a corpus."""
    folder = tmp_path_factory.mktemp("corpus")
    shop_database(folder / "shop.sqlite")
    rows = [
        {"question_id": str(number), "db_id": "shop", "question": text, "sql": sql}
        for number, (text, sql) in enumerate(QUESTIONS.items())
    ]
    (folder / "questions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def test_the_taught_policy_is_evaluated_in_vllm(corpus, tmp_path):
    torch.set_num_threads(1)
    policy = taught_policy(tmp_path / "policy", corpus / "shop.sqlite")
    places = [f"corpus.source={corpus}", f"corpus.prepared={tmp_path / 'prepared'}", f"model={policy}"]
    limits = ["sampling.temperature=0", "sampling.max_turn_tokens=60", "sampling.max_episode_tokens=1024"]
    given = ["corpus.name=jsonl", "corpus.split=train", "questions=3", "schema=full", f"env.prompts={PROMPTS}"]
    config = load_evaluation([], [*places, *limits, *given, "backend=vllm", "local.vllm_memory_share=0.3"])
    folder = run_evaluation(config, tmp_path / "evaluation", Console(quiet=True))
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["n"] == 3 and summary["equivalent"] == 1.0 and summary["ended_by"] == {"submit_sql": 1.0}
    records = read_records(folder)
    assert [record["sql"] for record in records] == list(QUESTIONS.values())
    assert all(record["rounds"] == 2 and record["processed_tokens"] > record["written_tokens"] for record in records)
    before = [path.stat().st_mtime_ns for path in sorted((folder / "episodes").iterdir())]
    run_evaluation(config, folder, Console(quiet=True))
    assert [path.stat().st_mtime_ns for path in sorted((folder / "episodes").iterdir())] == before
