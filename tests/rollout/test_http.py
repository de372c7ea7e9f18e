"""The client of a model's server: what is tried again, for how long, and what its errors say."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

import sqale_grpo.rollout.http as http
from sqale_grpo.env.errors import UserError
from sqale_grpo.rollout.http import HttpClient, RequestRefused, ServerError, backoff, may_pass


class Server(ThreadingHTTPServer):
    """Answers by path: each entry is (status, text), (status, text, announced length) or seconds to wait before 200."""

    def __init__(self, answers: dict[str, list[Any]]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers, self.asked = answers, []
        self.url = f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    """One answer a request; the last one stays."""

    def do_GET(self) -> None:
        """The next answer of the path."""
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        assert isinstance(self.server, Server)
        self.server.asked.append(self.path)
        answers = self.server.answers[self.path]
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(answer, float):
            time.sleep(answer)
            answer = (200, "{}")
        status, text, *length = answer
        with suppress(BrokenPipeError, ConnectionResetError):  # who asked has gone
            self.send_response(status)
            self.send_header("Content-Length", str(length[0] if length else len(text)))
            self.end_headers()
            self.wfile.write(text.encode())

    do_POST = do_GET

    def log_message(self, *_: object) -> None:
        """Nothing on standard error."""


@pytest.fixture
def server() -> Iterator[Server]:
    opened = Server({})
    thread = threading.Thread(target=opened.serve_forever)
    thread.start()
    yield opened
    opened.shutdown()
    thread.join()
    opened.server_close()


def ask(server: Server, path: str, answers: list[Any], **more: Any) -> tuple[dict[str, Any], list[float]]:
    """The answer of a server that gives ``answers``, and the waits between the tries."""
    server.answers[path], waits = answers, []
    client = HttpClient(server.url, **{"seconds": 20.0, "sleep": waits.append, **more})
    return client.post(path, {"a": 1}, "x"), waits


@pytest.mark.parametrize("status", [408, 409, 425, 429, 500, 502, 503, 504, 599])
def test_what_may_pass_is_tried_again(server: Server, status: int) -> None:
    assert may_pass(status)
    assert ask(server, "/a", [(status, "{}"), (200, '{"ok": 1}')]) == ({"ok": 1}, [backoff(0, "x")])


@pytest.mark.parametrize("status", [400, 401, 403, 404, 405, 422, 501])
def test_a_refusal_is_not_tried_again(server: Server, status: int) -> None:
    with pytest.raises(
        RequestRefused, match=rf"refuses the request \({status}\): too long; change what it names"
    ) as error:
        ask(server, "/a", [(status, '{"error": {"message": "too  long"}}')])
    assert server.asked == ["/a"] and error.value.status == status and error.value.words == "too long"


def test_an_answer_that_breaks_off_is_asked_for_again(server: Server) -> None:
    with pytest.raises(ServerError, match="gave no answer in 3 tries; the last: the connection failed"):
        ask(server, "/a", [(200, '{"choices": [', 100)], retries=2)
    assert server.asked == ["/a"] * 3


@pytest.mark.parametrize("text", ["<html>", "[1]", "null", ""])
def test_an_answer_that_is_no_object_is_refused(server: Server, text: str) -> None:
    with pytest.raises(RequestRefused, match="no JSON object"):
        ask(server, "/a", [(200, text)])


def test_a_server_that_hangs_is_not_asked_for_hours(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """One rule: no new try once PATIENCE_SECONDS were spent waiting for answers."""
    monkeypatch.setattr(http, "PATIENCE_SECONDS", 0.5)
    with pytest.raises(ServerError, match=r"in 2 tries; the last: no answer within 0\.3 s"):
        ask(server, "/a", [3.0], seconds=0.3)
    assert server.asked == ["/a"] * 2


def test_the_error_is_the_users_and_says_what_to_do() -> None:
    with pytest.raises(ServerError) as error:
        HttpClient("http://127.0.0.1:9", 1.0, retries=0).get("/v1/models")
    assert isinstance(error.value, UserError) and error.value.exit_status == 1
    assert str(error.value) == f"{error.value.what}; {http.START_AGAIN}"
    assert error.value.what.startswith("http://127.0.0.1:9/v1/models gave no answer in 1 try; the last: the connection")


def test_without_a_key_of_its_own_a_client_sends_none(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    with pytest.raises(RequestRefused, match=r"\(401\)"):
        ask(server, "/a", [(401, json.dumps({"detail": "who?"}))])
