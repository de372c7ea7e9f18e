"""The single file against llama.cpp's real server and a real small model: `make llama-test`."""

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sqale_grpo.agent.bundle import NAME, write_agent
from sqale_grpo.agent.settings import SETTINGS
from sqale_grpo.env.prompts import load_prompts
from sqale_grpo.rollout.text_frame import TextFrame
from tests.agent.conftest import PROMPTS
from tests.helpers.model_servers import llama_serve

pytestmark = pytest.mark.slow
# The chat template of SmolLM2, which keeps everything that was said.
FRAME = TextFrame(
    "<|im_start|>system\n",
    "<|im_end|>\n<|im_start|>user\n",
    "<|im_end|>\n<|im_start|>assistant\n",
    "\n<|im_start|>user\n",
    "<|im_end|>\n<|im_start|>assistant\n",
    ("<|im_end|>",),
    special_thinking=False,
)


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with llama_serve(4096) as address:
        yield address


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The single file of an export of that model."""
    made = tmp_path_factory.mktemp("smol") / NAME
    write_agent(made, load_prompts(PROMPTS), replace(SETTINGS, frame=FRAME))
    return made


def ask(file: Path, shop: Path, address: str, *more: str) -> subprocess.CompletedProcess:
    asked = ["--model", "smol", "--db", str(shop), "--question", "How many shops are there?", "--json"]
    short = ["--max-turn-tokens", "48", "--tool-turns", "2", "--max-episode-tokens", "3000"]
    command = [sys.executable, "-S", "-I", str(file), *asked, *short, "--backend", "openai", "--url", address, *more]
    return subprocess.run(command, capture_output=True, text=True, timeout=600)


def test_raw_prompt_and_chat_give_the_same_greedy_episode(file, shop, server):
    """Its template keeps all that was said, so both ways show the model the same tokens."""
    traces = {}
    for api, said in (("auto", "completions with text"), ("chat", "chat")):
        done = ask(file, shop, server, "--temperature", "0", "--api", api)
        assert done.returncode == 0, done.stderr
        assert f"the server is asked over {said}" in done.stderr
        traces[api] = [(turn["completion"].strip(), turn["observation"]) for turn in json.loads(done.stdout)["trace"]]
    assert len(traces["chat"]) == 3 and traces["auto"] == traces["chat"]


def test_candidates_of_a_real_server_draw_apart(file, shop, server):
    done = ask(file, shop, server, "--temperature", "1", "--candidates", "2")
    found = json.loads(done.stdout)
    assert done.returncode == 0 and found["candidates"] == 2 and found["is_sure"] in (True, False)


def test_a_prompt_that_its_context_does_not_hold_is_one_sentence(file, shop):
    with llama_serve(64) as address:
        done = ask(file, shop, address, "--api", "chat")
    lines = [line for line in done.stderr.splitlines() if not line.startswith("note: ")]
    assert done.returncode in (1, 2) and done.stdout == "" and len(lines) == 1 and lines[0].startswith("error: ")
