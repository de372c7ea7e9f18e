"""Backend openai against a real server on loopback, `transformers serve`: greedy answers are the model's own."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from sqale_grpo.corpus import PreparedCorpus
from sqale_grpo.evaluate.records import read_records
from sqale_grpo.evaluate.runner import run_evaluation
from sqale_grpo.settings.evaluation import load_evaluation
from tests.conftest import ROOT
from tests.helpers.model_servers import short_policy, transformers_serve


@pytest.fixture(scope="module")
def policy(demo_split: PreparedCorpus, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return short_policy(demo_split.directory, tmp_path_factory.mktemp("served") / "policy")


@pytest.fixture(scope="module")
def server(policy: Path) -> Iterator[str]:
    """Address of a server that holds the policy."""
    with transformers_serve(policy) as address:
        yield address


def evaluate(prepared: Path, policy: Path, folder: Path, *overrides: str) -> tuple[list[dict], dict]:
    given = [f"corpus.prepared={prepared}", f"env.prompts={ROOT / 'configs' / 'prompts' / 'demo.json'}"]
    given += [f"model={policy}", "questions=6", "sampling.temperature=0", "sampling.max_turn_tokens=64", "name=x"]
    config = load_evaluation([ROOT / "configs" / "eval" / "demo.yaml"], [*given, *overrides])
    run_evaluation(config, folder, Console(quiet=True))
    return read_records(folder), json.loads((folder / "summary.json").read_text())


@pytest.mark.long
def test_a_server_gives_the_greedy_answers_of_the_model_here(
    policy: Path, server: str, prepared_folder: Path, tmp_path: Path
):
    here, _ = evaluate(prepared_folder, policy, tmp_path / "here")
    calls = [call["tool"] for row in here for turn in row["turns"] for call in turn["calls"]]
    assert any(calls), "the policy writes calls that can be read"
    asked = ["backend=openai", f"server.url={server}"]
    there, summary = evaluate(prepared_folder, policy, tmp_path / "there", *asked)
    assert summary["api"] == "completions with text" and "stop_token_ids" in summary["not_sent"]
    assert there == here, "every turn, answer, score and count of tokens"
    chat, summary = evaluate(prepared_folder, policy, tmp_path / "chat", *asked, "server.api=chat")
    assert summary["api"] == "chat"
    # The server takes the thinking out of the text, and it is put back: the first turn says the same.
    first = [(row["turns"][0]["calls"], row["prompt_tokens"]) for row in here]
    assert [(row["turns"][0]["calls"], row["prompt_tokens"]) for row in chat] == first
    assert all(row["written_tokens"] for row in chat)
