"""Asking a server: what it is sent, what is tried again, and what a run that needs one says before it starts."""

import contextlib
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import pytest
import requests

import sqale_grpo.rollout.vllm_server as vllm_server
import sqale_grpo.train.backend_check as backend_check
from sqale_grpo.rollout.concurrent import ConcurrentEngine
from sqale_grpo.rollout.http import ServerError
from sqale_grpo.rollout.requests import Completion
from sqale_grpo.rollout.vllm_server import server_engine
from sqale_grpo.settings.check import ConfigError
from sqale_grpo.settings.load import load_config
from sqale_grpo.settings.sampling import Sampling
from sqale_grpo.train.backend_check import check_backend
from sqale_grpo.train.sync import send_weights
from tests.helpers.programs import program

main = program("train")

FIT = {
    "model_config": {"logprobs_mode": "processed_logprobs", "max_model_len": 12_288},
    "weight_transfer_config": {"backend": "nccl"},
}


@pytest.fixture
def server():
    """An HTTP server that answers from ``answers`` (path to (status, body)), after ``delays`` (path to seconds)."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            length = int(self.headers.get("Content-Length", 0))
            body = json.loads(self.rfile.read(length)) if length else None
            opened.asked.append((self.path, body))
            time.sleep(opened.delays.get(self.path, 0.0))
            answer = opened.answers.get(self.path, (404, {}))
            status, answer = answer.pop(0) if isinstance(answer, list) else answer
            with contextlib.suppress(BrokenPipeError):  # who asked has gone
                self.send_response(status)
                self.end_headers()
                self.wfile.write(json.dumps(answer).encode())

        do_POST = do_GET

        def log_message(self, *args):
            pass

    opened = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    opened.url = f"http://127.0.0.1:{opened.server_port}"
    opened.asked = []
    opened.delays = {}
    opened.answers = {"/v1/models": (200, {"data": [{"id": "policy"}]})}
    thread = threading.Thread(target=opened.serve_forever)
    thread.start()
    yield opened
    opened.shutdown()
    thread.join()
    opened.server_close()


def test_a_turn_is_asked_for_in_tokens_and_ends_on_the_frames_stops(server):
    answer = {"choices": [{"token_ids": [5, 2], "logprobs": {"token_logprobs": [-0.5, -0.25]}}]}
    server.answers["/v1/completions"] = (200, answer)
    with server_engine(server.url, Sampling(temperature=0.7, top_k=3), {2, 1}, 4) as engine:
        engine.submit(9, [3, 4], 17)
        found = []
        while not found:
            found = engine.collect()
    assert found == [Completion(9, [5, 2], [-0.5, -0.25])]
    path, body = server.asked[-1]
    wanted = {"model": "policy", "prompt": [3, 4], "max_tokens": 17, "temperature": 0.7, "top_k": 3, "logprobs": 0}
    assert path == "/v1/completions" and wanted.items() <= body.items()
    assert body["stop_token_ids"] == [1, 2] and body["ignore_eos"]
    # Left out, they would come from the model's generation config.
    penalties = {"repetition_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0, "min_p": 0.0}
    assert penalties.items() <= body.items()


def test_weights_that_a_lost_server_does_not_take_are_one_sentence():
    class Generation:
        def sync_weights(self):
            raise requests.exceptions.ConnectionError("Max retries exceeded")

    trainer = SimpleNamespace(vllm_mode="server", vllm_generation=Generation())
    with pytest.raises(ServerError, match="the weights could not be sent: Max retries exceeded"):
        send_weights(trainer)


@pytest.mark.parametrize(
    "answer", [{}, {"choices": []}, {"choices": [{"text": "a"}]}, {"choices": [{"token_ids": [1]}]}]
)
def test_an_answer_without_tokens_is_named(server, answer):
    server.answers["/v1/completions"] = (200, answer)
    with server_engine(server.url, Sampling(), {2}, 1) as engine:
        engine.submit(0, [1], 1)
        with pytest.raises(ServerError, match="without token ids and log-probabilities"):
            for _ in range(500):
                engine.collect()


def test_an_error_does_not_wait_for_a_server_that_hangs(server):
    """Ctrl-C must end a run: neither closing nor the interpreter's end waits for a request under way."""
    hangs, asked = threading.Event(), []

    def complete(request, token_ids, max_tokens):
        asked.append(request)
        hangs.wait(20)
        return Completion(request, [], [])

    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt), ConcurrentEngine(complete, 1) as engine:
        engine.submit(0, [], 1)
        engine.submit(1, [], 1)
        while not asked:
            time.sleep(0.01)
        raise KeyboardInterrupt
    assert time.monotonic() - started < 10
    hangs.set()
    (thread,) = engine._threads
    thread.join(10)
    assert asked == [0] and thread.daemon and not thread.is_alive()


def test_what_a_request_raises_reaches_the_run(server):
    with server_engine(server.url, Sampling(), {2}, 1) as engine:
        engine.submit(0, [1], 1)
        with pytest.raises(ServerError, match=r"refuses the request \(404\)"):
            for _ in range(500):
                engine.collect()


def test_requests_run_beside_each_other():
    both = threading.Barrier(2, timeout=20)

    def complete(request, token_ids, max_tokens):
        both.wait()  # passes only when the other one is under way
        return Completion(request, [], [])

    with ConcurrentEngine(complete, 2) as engine:
        engine.submit(0, [], 1)
        engine.submit(1, [], 1)
        found = []
        while len(found) < 2:
            found += engine.collect()
    assert {completion.request for completion in found} == {0, 1}


def installed(monkeypatch, **versions):
    def version(name):
        if versions.get(name) is None:
            raise backend_check.PackageNotFoundError(name)
        return versions[name]

    monkeypatch.setattr(backend_check, "version", version)


def check(*overrides):
    check_backend(load_config([], list(overrides)))


@pytest.mark.parametrize(
    ("versions", "says"),
    [
        ({}, "vLLM, which is not installed: use the environment that `make vllm-env` makes"),
        ({"vllm": "0.21.3", "transformers": "5.17.0"}, "vLLM 0.21.3 is installed, and 0.31 is what was tested"),
        ({"vllm": "0.32.0", "transformers": "5.17.0"}, "vLLM 0.32.0 is installed"),
        ({"vllm": "0.31.1+cpu", "transformers": "5.24.0"}, "transformers 5.24.0 is installed, vLLM 0.31.1+cpu needs"),
    ],
)
def test_versions_that_do_not_fit_are_named(monkeypatch, versions, says):
    installed(monkeypatch, **versions)
    check("rollout.backend=transformers")
    with pytest.raises(ConfigError) as error:
        check("rollout.backend=vllm_colocate")
    assert says in str(error.value) and "\n" not in str(error.value)


def test_versions_that_fit_pass(monkeypatch):
    installed(monkeypatch, vllm="0.31.0+cpu", transformers="5.17.0")
    check("rollout.backend=vllm_colocate")


def test_a_server_that_is_not_there_is_named_with_the_command(monkeypatch):
    installed(monkeypatch, vllm="0.31.0", transformers="5.17.0")
    with pytest.raises(
        ConfigError, match=r"no vLLM server answers \(http://127.0.0.1:9/.*start one as: VLLM_SERVER_DEV"
    ):
        check("rollout.backend=vllm_server", "rollout.vllm_server=http://127.0.0.1:9")


@pytest.mark.parametrize(
    ("info", "says"),
    [
        (None, "does not tell its configuration"),
        ({**FIT, "weight_transfer_config": None}, "no weight transfer"),
        (
            {**FIT, "model_config": {**FIT["model_config"], "logprobs_mode": "raw_logprobs"}},
            "gives raw_logprobs",
        ),
        (
            {**FIT, "model_config": {**FIT["model_config"], "max_model_len": 4_096}},
            "holds 4096 tokens, fewer than rollout.max_episode_tokens=12288",
        ),
        ({"weight_transfer_config": {}}, "does not tell its configuration"),
        (FIT, ""),
    ],
)
def test_a_server_is_checked_before_a_run(monkeypatch, server, info, says):
    installed(monkeypatch, vllm="0.31.0", transformers="5.17.0")
    if info is not None:
        server.answers["/server_info?config_format=json"] = (200, {"vllm_config": info})
    overrides = ["rollout.backend=vllm_server", f"rollout.vllm_server={server.url}"]
    if not says:
        check(*overrides)
        return
    with pytest.raises(ConfigError) as error:
        check(*overrides)
    assert says in str(error.value) and "--weight-transfer-config" in str(error.value)
    assert "\n" not in str(error.value)


def test_a_server_may_take_its_time_to_tell_its_configuration(monkeypatch, server):
    installed(monkeypatch, vllm="0.31.0", transformers="5.17.0")
    monkeypatch.setattr(vllm_server, "CHECK_SECONDS", 0.2)
    overrides = ["rollout.backend=vllm_server", f"rollout.vllm_server={server.url}"]
    info = "/server_info?config_format=json"
    server.answers[info], server.delays[info] = (200, {"vllm_config": FIT}), 1.0
    check(*overrides)
    monkeypatch.setattr(backend_check, "INFO_SECONDS", 0.2)
    with pytest.raises(ConfigError, match="does not tell its configuration.*no answer within 0.2 s"):
        check(*overrides)


def test_a_server_that_is_still_loading_is_waited_for(monkeypatch, server):
    installed(monkeypatch, vllm="0.31.0", transformers="5.17.0")
    monkeypatch.setattr(backend_check, "POLL_SECONDS", 0.01)
    server.answers["/v1/models"] = [(503, {}), (503, {}), (200, {"data": [{"id": "policy"}]})]
    server.answers["/server_info?config_format=json"] = (200, {"vllm_config": FIT})
    check("rollout.backend=vllm_server", f"rollout.vllm_server={server.url}", "rollout.vllm_server_wait=30")


@pytest.mark.parametrize("url", ["localhost:8000", "http://", "http://host:8000/", "ftp://host", "http://a b", ""])
def test_an_address_that_is_none_is_refused(url):
    with pytest.raises(ConfigError, match="rollout.vllm_server must be an address like http://HOST:8000"):
        load_config([], [f"rollout.vllm_server={url}" if url else "rollout.vllm_server=''"])


def test_a_server_lost_in_the_middle_of_a_run_is_one_sentence(monkeypatch, capsys):
    def run(*arguments):
        raise ServerError("http://host:8000/v1/completions: Connection refused")

    monkeypatch.setattr("sqale_grpo.train.run.run", run)
    assert main(["configs/demo.yaml"]) == 1
    said = capsys.readouterr().err
    assert "Connection refused" in said and "--resume" in said and "Traceback" not in said
