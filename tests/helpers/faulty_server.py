"""A model's server over real connections that misbehaves on demand."""

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

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
        self.answer(200, {"data": [{"id": "tiny", **self.server.listed}]})

    def do_POST(self) -> None:
        """One fault, or chat."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        server = self.server
        with server.lock:
            server.seen.append((self.path, body, self.headers.get("Authorization")))
            fault = server.faults.pop(0) if server.faults else None
        if fault is None and server.answer is not None:
            status, value = server.answer(body)
            return self.answer(status, value)
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


@contextmanager
def faulty_server() -> Iterator[ThreadingHTTPServer]:
    """A server in a thread: ``faults`` (one a request), ``seen``, ``answer(body)``, ``listed`` (of its model)."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.faults, server.seen, server.lock = [], [], threading.Lock()
    server.answer, server.listed = None, {}
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def url(server: ThreadingHTTPServer) -> str:
    """Its address, with its /v1."""
    return f"http://127.0.0.1:{server.server_port}/v1"
