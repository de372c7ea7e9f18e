"""Backend openai against a real server on loopback, `transformers serve`: greedy answers are the model's own."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from rich.console import Console

from sqale_grpo.corpus import PreparedCorpus
from sqale_grpo.demo.build import make_policy
from sqale_grpo.evaluate.records import read_records
from sqale_grpo.evaluate.runner import run_evaluation
from sqale_grpo.settings.evaluation import load_evaluation
from sqale_grpo.settings.load import load_config
from tests.conftest import ROOT

# Trained for some seconds: it writes calls in plain ASCII, which text carries from and to a server as they are.
SHORT = [
    "demo_policy.hidden_size=32",
    "demo_policy.head_dim=32",
    "demo_policy.linear_head_dim=16",
    "demo_policy.careful_traces=120",
    "demo_policy.imperfect_traces=10",
    "demo_policy.copy_max_steps=10",
    "demo_policy.clean_steps=120",
    "demo_policy.imperfect_steps=1",
]


@pytest.fixture(scope="module")
def policy(demo_split: PreparedCorpus, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A policy that writes calls. As in Qwen's tokenizer, ``<think>`` and ``</think>`` are no special tokens."""
    folder = tmp_path_factory.mktemp("served") / "policy"
    prompts = f"env.prompts={ROOT / 'configs' / 'prompts' / 'demo.json'}"
    config = load_config([ROOT / "configs" / "demo.yaml"], [*SHORT, prompts])
    make_policy(config, demo_split.directory, folder, lambda text: None)
    file = folder / "tokenizer.json"
    tokenizer = json.loads(file.read_text())
    for token in tokenizer["added_tokens"]:
        token["special"] = token["special"] and "think" not in token["content"]
    file.write_text(json.dumps(tokenizer))
    return folder


@pytest.fixture(scope="module")
def server(policy: Path) -> Iterator[str]:
    """Address of a server that holds the policy."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    program = Path(sys.executable).with_name("transformers")
    command = [program, "serve", policy, "--host", "127.0.0.1", "--port", port, "--device", "cpu", "--dtype", "float32"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    process = subprocess.Popen(
        list(map(str, command)), env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        deadline = time.monotonic() + 300
        while True:
            assert process.poll() is None and time.monotonic() < deadline, "the server does not come up"
            try:
                httpx.get(f"http://127.0.0.1:{port}/health", timeout=5).raise_for_status()
                break
            except httpx.HTTPError:
                time.sleep(0.2)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.kill()
        process.wait()


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
