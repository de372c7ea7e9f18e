"""The agent behind a server: what it sends, which way it asks, and one sentence for what a server does wrong."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from http.server import ThreadingHTTPServer
from pathlib import Path

import pytest
from transformers import AutoTokenizer

from sqale_grpo.agent.bundle import NAME, write_agent
from sqale_grpo.agent.settings import SETTINGS
from sqale_grpo.env.prompts import load_prompts
from sqale_grpo.rollout.chat import chat_frame
from sqale_grpo.rollout.served import LETTER
from sqale_grpo.rollout.text_frame import TextFrame, text_frame
from tests.agent.conftest import PROMPTS
from tests.helpers.faulty_server import faulty_server, url

KEY = "sk-test-123456"
LOOK = '{"tool": "run_query", "args": {"sql": "SELECT count(*) FROM shops"}}'
SUBMIT = '{"tool": "submit_sql", "args": {"sql": "SELECT count(*) FROM shops"}}'
FULL = "This model's maximum context length is 512 tokens. However, you requested 2000 tokens."


@pytest.fixture
def server() -> Iterator[ThreadingHTTPServer]:
    with faulty_server() as opened:
        yield opened


@pytest.fixture(scope="module")
def frame(tiny_model: Path) -> TextFrame:
    return text_frame(chat_frame(AutoTokenizer.from_pretrained(tiny_model)))


@pytest.fixture(scope="module")
def export_file(frame: TextFrame, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The single file of an export: it knows its model's chat template."""
    file = tmp_path_factory.mktemp("export") / NAME
    write_agent(file, load_prompts(PROMPTS), replace(SETTINGS, frame=frame))
    return file


def ask(file: Path, shop: Path, address: str, *more: str, **environment: str) -> subprocess.CompletedProcess:
    """The file run alone, without site-packages: the standard library is all there is."""
    asked = ["--model", "tiny", "--db", str(shop), "--question", "How many shops?", "--backend", "openai"]
    command = [sys.executable, "-S", "-I", str(file), *asked, "--url", address, "--json", *more]
    variables = {name: value for name, value in os.environ.items() if "proxy" not in name.lower()} | environment
    variables = {name: value for name, value in variables.items() if name != "OPENAI_API_KEY" or environment}
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env=variables)


def usage(read: int) -> dict:
    return {"prompt_tokens": read, "completion_tokens": 20}


def chat(body: dict) -> tuple[int, dict]:
    """A chat model that looks once, then submits; no completions."""
    if "messages" not in body:
        return 404, {"detail": "Not Found"}
    said = LOOK if len(body["messages"]) == 2 else SUBMIT
    return 200, {"choices": [{"message": {"content": said}, "finish_reason": "stop"}], "usage": usage(50)}


def raw(body: dict) -> tuple[int, dict]:
    """The same over completions; no chat."""
    if "prompt" not in body:
        return 404, {"detail": "Not Found"}
    said = LOOK if LOOK not in body["prompt"] else SUBMIT
    read = max(1, len(body["prompt"]) // 4)
    return 200, {"choices": [{"text": f"thought</think>{said}", "finish_reason": "stop"}], "usage": usage(read)}


def test_the_file_asks_a_chat_server_with_the_standard_library_alone(agent_file, shop, server):
    server.answer = chat
    done = ask(agent_file, shop, url(server), OPENAI_API_KEY=KEY)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["sql"], found["rows"], found["turns"]) == ("SELECT count(*) FROM shops", [[3]], 2)
    assert "note: the server is asked over chat" in done.stderr
    assert {key for _, _, key in server.seen} == {f"Bearer {KEY}"} and KEY not in done.stdout + done.stderr
    assert [path for path, _, _ in server.seen] == ["/v1/chat/completions"] * 3, "a probe, and a request a turn"
    sent = server.seen[-1][1]
    assert [message["role"] for message in sent["messages"]] == ["system", "user", "assistant", "user"]
    assert sent["temperature"] == 0.6 and "logprobs" not in sent


def test_an_export_sends_the_raw_prompt_in_its_models_own_template(export_file, shop, server, frame, tiny_model):
    server.answer = raw
    done = ask(export_file, shop, url(server))
    assert done.returncode == 0, done.stderr
    assert "note: the server is asked over completions with text" in done.stderr
    first, second = (body["prompt"] for _, body, _ in server.seen[1:])
    trace = json.loads(done.stdout)["trace"]
    assert second == frame.continued(first, f"thought</think>{LOOK}", trace[0]["observation"])
    messages = load_prompts(PROMPTS).first_messages("How many shops?", "", SETTINGS.episode.tool_turns)
    template = AutoTokenizer.from_pretrained(tiny_model)
    turns = [*messages, {"role": "assistant", "content": "x"}, {"role": "user", "content": "y"}]
    own = chat_frame(template)
    assert first == own.rendered(messages)
    assert frame.continued(first, "x", "y").endswith(own.rendered(turns).partition("x<|im_end|>")[2])
    assert server.seen[-1][1]["stop"] == list(frame.stops)


def test_a_server_that_puts_prompts_into_a_template_of_its_own_is_asked_over_chat(export_file, shop, server):
    def answer(body):
        if "prompt" not in body:
            return chat(body)
        return 200, {"choices": [{"text": "Hello!", "finish_reason": "stop"}], "usage": usage(26)}

    server.answer = answer
    done = ask(export_file, shop, url(server))
    assert done.returncode == 0, done.stderr
    assert "asked over chat" in done.stderr and server.seen[0][1]["prompt"] == LETTER
    refused = ask(export_file, shop, url(server), "--api", "completions")
    assert_sentence(refused, 2, "--api completions cannot be used", "reads 26 tokens where one letter is sent")


def test_several_candidates_are_asked_at_once_and_vote(agent_module, shop, server):
    server.answer = chat
    agent = agent_module.SQaLeAgent(*agent_module.openai_generate(url(server), "tiny"))
    found = agent.run("How many shops?", shop, candidates=4)
    assert (found["agreement"], found["is_sure"], found["votes"][0]["count"]) == (1.0, True, 4)
    assert len(server.seen) == 1 + 4 * 2 and found["prompt_ids"] == []


# What a server does wrong


def assert_sentence(done: subprocess.CompletedProcess, status: int, *words: str) -> None:
    lines = [line for line in done.stderr.splitlines() if not line.startswith("note: ")]
    assert (done.returncode, done.stdout, len(lines)) == (status, "", 1), done.stderr
    assert lines[0].startswith("error: ") and all(word in lines[0] for word in words), lines[0]


def test_a_server_that_is_not_there_is_named(agent_file, shop):
    done = ask(agent_file, shop, "http://127.0.0.1:9/v1")
    assert_sentence(done, 2, "no server answers at http://127.0.0.1:9/v1", "start it, or set --url")
    assert_sentence(ask(agent_file, shop, "127.0.0.1:9"), 2, "--url is no http(s) address", "http://HOST:8000/v1")
    assert_sentence(ask(agent_file, shop, "http://me:pw@127.0.0.1:9/v1"), 2, "--url holds a user or a key")


def test_a_wrong_key_is_named_by_its_variable(agent_file, shop, server):
    refusal = (401, f"Incorrect API key provided: {KEY}", {})
    server.faults = [refusal]
    done = ask(agent_file, shop, url(server), "--key-variable", "MY_KEY", MY_KEY=KEY)
    assert_sentence(done, 2, "refuses the key in the environment variable MY_KEY")
    assert KEY not in done.stderr
    server.faults = [refusal]
    done = ask(agent_file, shop, url(server))
    assert_sentence(done, 2, "refuses a request without a key; set the environment variable OPENAI_API_KEY")


def test_a_context_too_short_for_the_first_turn_is_one_sentence(agent_file, shop, server):
    server.answer = lambda body: chat(body) if body["max_tokens"] == 1 else (400, {"error": {"message": FULL}})
    assert_sentence(
        ask(agent_file, shop, url(server)), 2, "is too short for an episode's first turn", "--max-model-len"
    )


def test_a_context_that_is_full_later_gives_the_last_working_query_and_says_so(agent_file, shop, server):
    server.answer = lambda body: chat(body) if len(body["messages"]) < 4 else (400, {"error": {"message": FULL}})
    done = ask(agent_file, shop, url(server))
    found = json.loads(done.stdout)
    assert (found["ended_by"], found["rows"]) == ("token_budget", [[3]])
    assert "note: 1 episodes ended as token_budget because the server's context was full" in done.stderr


def test_a_server_that_stops_in_the_middle_is_one_sentence(agent_module, shop, server, capsys, monkeypatch):
    monkeypatch.setattr(agent_module, "FIRST_WAIT", 0.01)
    server.faults = [None, None, *["cut"] * 4]
    server.answer = chat
    words = ["--model", "tiny", "--db", str(shop), "--question", "How many?", "--backend", "openai"]
    status = agent_module.run_program(lambda: agent_module.main([*words, "--url", url(server)]))
    out, error = capsys.readouterr()
    done = subprocess.CompletedProcess([], status, out, error)
    assert_sentence(done, 1, "gave no answer in 4 tries", "the connection failed", "ask again")


def test_a_server_without_log_probabilities_is_no_bar(agent_file, shop, server):
    def answer(body):
        return (400, {"error": {"message": "logprobs is not supported"}}) if "logprobs" in body else chat(body)

    server.answer = answer
    assert ask(agent_file, shop, url(server)).returncode == 0


def test_a_context_that_is_cut_in_silence_is_said(agent_file, shop, server):
    """As Ollama does: the second turn is read with fewer tokens than the first."""

    def answer(body):
        status, value = chat(body)
        return status, {**value, "usage": usage(600 if len(body.get("messages", ())) == 2 else 512)}

    server.answer = answer
    done = ask(agent_file, shop, url(server))
    assert done.returncode == 0 and "the server cuts what its context does not hold" in done.stderr
