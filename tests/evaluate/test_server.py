"""Backend openai: retries, refusals and keys against a server that misbehaves on demand, over real connections."""

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from rich.console import Console

from sqale_grpo.corpus import PreparedCorpus
from sqale_grpo.evaluate.records import read_records
from sqale_grpo.evaluate.runner import EvaluationError, run_evaluation
from sqale_grpo.evaluate.server import client_of, open_server, turn_text
from sqale_grpo.rollout.http import HttpClient, RequestRefused, ServerError, backoff, retry_after
from sqale_grpo.settings.check import ConfigError
from sqale_grpo.settings.evaluation import ServerConfig, load_evaluation
from tests.conftest import ROOT

KEY = "sk-test-123456"
CHAT_ANSWER = {
    "choices": [
        {"message": {"content": '{"tool": "submit_sql", "args": {"sql": "SELECT 1"}}'}, "finish_reason": "stop"}
    ],
    "usage": {"prompt_tokens": 50, "completion_tokens": 12},
}


class Handler(BaseHTTPRequestHandler):
    """Answers as the server's list of faults says, one a request, then as it should."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """The models."""
        self.answer(200, {"data": [{"id": "tiny"}]})

    def do_POST(self) -> None:
        """One fault, or chat."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        server = self.server
        with server.lock:
            server.seen.append((self.path, body, self.headers.get("Authorization")))
            fault = server.faults.pop(0) if server.faults else None
        if fault is None:
            if self.path == "/v1/chat/completions":
                return self.answer(200, CHAT_ANSWER)
            return self.answer(404, {"detail": "Not Found"})
        if fault == "slow":
            time.sleep(1.0)
            return self.answer(200, CHAT_ANSWER)
        if fault == "cut":
            self.close_connection = True
            return self.connection.shutdown(socket.SHUT_RDWR)
        if isinstance(fault, dict):
            return self.answer(200, fault)
        status, words, headers = fault
        return self.answer(status, {"error": {"message": words}}, headers)

    def answer(self, status: int, value: dict, headers: dict | None = None) -> None:
        """Send JSON."""
        data = json.dumps(value).encode()
        self.send_response(status)
        for name, text in {"Content-Length": str(len(data)), **(headers or {})}.items():
            self.send_header(name, text)
        self.end_headers()
        with suppress(BrokenPipeError):  # of a client that did not wait
            self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Nothing on stderr."""


@pytest.fixture
def faulty() -> Iterator[ThreadingHTTPServer]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.faults, server.seen, server.lock = [], [], threading.Lock()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def url(server: ThreadingHTTPServer) -> str:
    return f"http://127.0.0.1:{server.server_port}/v1"


def client(server: ThreadingHTTPServer, waits: list[float], **values: object) -> HttpClient:
    return client_of(ServerConfig(url=url(server), **values), waits.append)


def test_what_may_pass_is_tried_again_at_growing_distances(faulty):
    faulty.faults = [(500, "broken", {}), (429, "slow down", {"Retry-After": "7"}), "cut", (503, "starting", {})]
    waits: list[float] = []
    assert client(faulty, waits).post("/chat/completions", {"a": 1}, "x") == CHAT_ANSWER
    assert [body for _, body, _ in faulty.seen] == [{"a": 1}] * 5
    assert waits == [backoff(0, "x"), 7.0, backoff(2, "x"), backoff(3, "x")]
    assert all(0.25 * 2**n <= backoff(n, "x") <= 0.75 * 2**n for n in range(6)) and backoff(30, "x") <= 90
    assert backoff(1, "x") != backoff(1, "y"), "requests do not come back all at once"


def test_a_date_in_retry_after_is_understood():
    assert 50 < retry_after(formatdate(time.time() + 60, usegmt=True)) <= 60
    nowhere = formatdate(time.time() + 60).replace("+0000", "-0000")
    assert 50 < retry_after(nowhere) <= 60
    assert retry_after("nonsense") is None and retry_after(None) is None and retry_after("-3") == 0.0


def test_a_timeout_is_tried_again_and_then_told(faulty):
    faulty.faults = ["slow"]
    waits: list[float] = []
    assert client(faulty, waits, timeout_seconds=0.3).post("/chat/completions", {}, "x") == CHAT_ANSWER
    faulty.faults = ["slow", "slow"]
    with pytest.raises(ServerError, match="no answer in 2 tries; the last: no answer within 0.3 s"):
        client(faulty, waits, timeout_seconds=0.3, retries=1).post("/chat/completions", {}, "x")


def test_a_refusal_is_not_tried_again(faulty):
    faulty.faults = [(400, "the context holds 4096 tokens", {})]
    waits: list[float] = []
    with pytest.raises(RequestRefused, match="refuses the request \\(400\\): the context holds 4096 tokens"):
        client(faulty, waits).post("/chat/completions", {}, "x")
    assert not waits and len(faulty.seen) == 1


def test_the_key_is_sent_and_never_shown(faulty, monkeypatch):
    monkeypatch.setenv("MY_KEY", KEY)
    faulty.faults = [(401, f"Incorrect API key provided: {KEY}", {})]
    mine = client(faulty, [], key_variable="MY_KEY")
    with pytest.raises(ConfigError, match="refuses the key in the environment variable MY_KEY") as error:
        mine.post("/chat/completions", {}, "x")
    assert faulty.seen[0][2] == f"Bearer {KEY}" and KEY not in str(error.value)
    faulty.faults = [(400, f"bad request of {KEY}", {})]
    with pytest.raises(RequestRefused) as refused:
        mine.post("/chat/completions", {}, "x")
    assert KEY not in str(refused.value) and "***" in str(refused.value)
    monkeypatch.delenv("MY_KEY")
    faulty.faults = [(401, "no", {})]
    with pytest.raises(ConfigError, match="refuses a request without a key; set the environment variable MY_KEY"):
        client(faulty, [], key_variable="MY_KEY").post("/chat/completions", {}, "x")


@pytest.mark.parametrize("key", ["sk-one\ntwo", "sk-schlüssel"])
def test_a_key_that_no_request_can_carry_is_one_sentence_without_it(key, monkeypatch):
    monkeypatch.setenv("MY_KEY", key)
    with pytest.raises(ConfigError, match="MY_KEY holds a line break or another character") as error:
        client_of(ServerConfig(key_variable="MY_KEY"))
    assert "sk-" not in str(error.value)


def test_no_part_of_the_key_is_left_where_a_long_message_is_cut(faulty, monkeypatch):
    monkeypatch.setenv("MY_KEY", KEY)
    faulty.faults = [(400, "x" * (300 - len(KEY) + 3) + KEY, {})]
    with pytest.raises(RequestRefused) as refused:
        client(faulty, [], key_variable="MY_KEY").post("/chat/completions", {}, "x")
    assert KEY[:5] not in str(refused.value)


@pytest.mark.parametrize("address", ["http://127.0.0.1:abc/v1", "http://[::1/v1"])
def test_an_address_that_is_none_is_one_sentence(address):
    with pytest.raises(ConfigError, match="server.url is no address"):
        client_of(ServerConfig(url=address))


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ({"choices": {}}, "without choices"),
        ({"choices": ["x"]}, "a choice that is no object"),
        ({"choices": [{"message": "x"}]}, "a message or a usage"),
        ({"choices": [{"message": {"content": [{"type": "text", "text": "x"}]}}]}, "a text that is none"),
        ({"choices": [{"text": 3}]}, "a text that is none"),
        ({"choices": [{"text": "x", "token_ids": [1, -1]}]}, "token ids that are none"),
        ({"choices": [{"message": {"content": "x"}}], "usage": {"prompt_tokens": "50"}}, "a usage that is no number"),
    ],
)
def test_an_answer_in_another_shape_fails_its_question_alone(faulty, tmp_path, answer, problem):
    backend = open_server(config(url(faulty), tmp_path))
    faulty.faults = [answer]
    with pytest.raises(RequestRefused, match=problem):
        backend.ask("/chat/completions", {}, 5, "x")
    backend.close()


def config(address: str, prepared: Path, *more: str):
    given = ["backend=openai", "model=tiny", f"server.url={address}", f"corpus.prepared={prepared}", "questions=6"]
    prompts = f"env.prompts={ROOT / 'configs' / 'prompts' / 'demo.json'}"
    return load_evaluation([ROOT / "configs" / "eval" / "demo.yaml"], [*given, prompts, "name=x", *more])


def test_parameters_that_a_server_does_not_take_are_left_out_and_said(faulty, tmp_path):
    faulty.faults = [
        (400, "Unrecognized request argument supplied: top_k, chat_template_kwargs", {}),
        (400, "Unsupported parameter: 'max_tokens' is not supported. Use 'max_completion_tokens' instead.", {}),
        (400, "Unsupported value: 'temperature' does not support 0.6 with this model.", {}),
    ]
    backend = open_server(config(url(faulty), tmp_path))
    assert backend.facts["api"] == "chat"
    assert backend.facts["not_sent"] == ["chat_template_kwargs", "temperature", "top_k"]
    sent = faulty.seen[-1][1]
    assert sent["max_completion_tokens"] == 1 and sent["top_p"] == 0.95 and sent["model"] == "tiny"
    backend.close()


def test_an_unknown_model_and_no_server_are_one_sentence(faulty, tmp_path):
    faulty.faults = [(404, "The model `tiny2` does not exist.", {})]
    with pytest.raises(ConfigError, match="has no model 'tiny'; it has tiny: set model="):
        open_server(config(url(faulty), tmp_path))
    with pytest.raises(ConfigError, match="no server answers at http://127.0.0.1:9/v1 .*; start it, or set server.url"):
        open_server(config("http://127.0.0.1:9/v1", tmp_path))
    with pytest.raises(ConfigError, match="needs the model's tokenizer; set server.tokenizer"):
        open_server(config(url(faulty), tmp_path, "server.api=completions"))


def test_a_failed_question_is_recorded_and_played_at_the_next_start(
    faulty, demo_split: PreparedCorpus, prepared_folder: Path, tmp_path: Path
):
    asked = config(url(faulty), prepared_folder, "server.retries=0", "server.concurrency=1")
    faulty.faults = [None, (500, "out of memory", {})]  # the probe, then the first question
    folder = tmp_path / "x"
    with pytest.raises(EvaluationError, match="1 of the questions could not be played, .* status 500: out of memory"):
        run_evaluation(asked, folder, Console(quiet=True))
    assert len(json.loads((folder / "failed.json").read_text())) == 1 and len(read_records(folder)) == 5
    assert not (folder / "summary.json").exists(), "nothing is averaged without it"
    run_evaluation(asked, folder, Console(quiet=True))
    summary = json.loads((folder / "summary.json").read_text())
    assert not (folder / "failed.json").exists() and len(read_records(folder)) == 6
    assert (summary["api"], summary["n"]) == ("chat", 6)
    assert (summary["written_tokens"], summary["processed_tokens"], summary["prompt_tokens"]) == (12, 62, 50)


def test_an_outage_ends_the_evaluation_instead_of_failing_every_question(
    faulty, demo_split: PreparedCorpus, prepared_folder: Path, tmp_path: Path
):
    asked = config(url(faulty), prepared_folder, "server.retries=0", "batch=2")
    faulty.faults = [None] + [(503, "down", {})] * 20
    with pytest.raises(EvaluationError, match="2 of the questions could not be played"):
        run_evaluation(asked, tmp_path / "x", Console(quiet=True))


def test_thinking_that_comes_apart_is_put_back():
    assert turn_text({"content": "x", "reasoning_content": " a "}) == "<think>\na\n</think>\n\nx"
    assert turn_text({"content": "<think>a</think>x"}) == "<think>a</think>x" and turn_text({"content": None}) == ""
