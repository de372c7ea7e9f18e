"""Watching: the report served on this machine alone, made anew when the run's files have changed and a reader asks."""

import threading
from collections.abc import Sequence
from functools import partial
from hashlib import blake2b
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

from sqale_grpo.report.folders import (
    CONFIG,
    EVALUATIONS,
    METRICS,
    SUMMARY,
    ReportError,
    distinct_names,
    episode_files,
    open_folder,
)
from sqale_grpo.report.page import Page

HOST = "127.0.0.1"
WAITING = (
    "<!doctype html><html lang=en><meta charset=utf-8><meta http-equiv=refresh content=4><title>Run report</title>"
    "<body style='font: 16px system-ui; margin: 3rem; color-scheme: light dark'><h1>Nothing to show yet</h1><p>{}</p>"
    "<p>The page looks again every few seconds.</p>"
)


class Watcher:
    """The folders' report, kept until one of their files changes."""

    def __init__(self, paths: Sequence[Path], page: Page) -> None:
        self._paths = [path.resolve() for path in dict.fromkeys(paths)]
        self._page = page
        self._lock = threading.Lock()
        self._made = ("", "")

    def version(self) -> str:
        """A text that differs whenever a file that the report reads was added or changed."""
        digest = blake2b(digest_size=8)
        for path in self._paths:
            for file in _read_files(path):
                try:
                    state = file.stat()
                except FileNotFoundError:
                    continue
                digest.update(f"{file}\0{state.st_mtime_ns}\0{state.st_size}\n".encode("utf-8", "surrogateescape"))
        return digest.hexdigest()

    def html(self) -> str:
        """The page as of now."""
        with self._lock:
            version = self.version()
            if self._made[0] != version:
                self._made = (version, self._render(version))
            return self._made[1]

    def _render(self, version: str) -> str:
        try:
            names = distinct_names(self._paths)
            folders = [open_folder(path, name) for path, name in zip(self._paths, names, strict=True)]
            return self._page.render(folders, version)
        except (ReportError, OSError) as error:  # OSError: what was listed has gone, as a run that is deleted
            return WAITING.format(_escaped(str(error)))


def make_server(paths: Sequence[Path], page: Page, port: int) -> ThreadingHTTPServer:
    """A server of the report of ``paths`` on 127.0.0.1; ``port`` 0 takes a free one. OSError where it is taken."""
    return ThreadingHTTPServer((HOST, port), partial(_Handler, Watcher(paths, page)))


class _Handler(BaseHTTPRequestHandler):
    server_version = "report"
    sys_version = ""

    def __init__(self, watcher: Watcher, *arguments: object) -> None:
        self._watcher = watcher
        super().__init__(*arguments)  # type: ignore[arg-type]

    def do_GET(self) -> None:
        """The page and its version; nothing else is here."""
        # A page of another site that resolves its name to this machine would send that name.
        if self.headers.get("Host", "").rsplit(":", 1)[0] not in (HOST, "localhost"):
            self._send(HTTPStatus.FORBIDDEN, "text/plain", "only for this machine")
            return
        path = urlsplit(self.path).path
        if path == "/":
            self._send(HTTPStatus.OK, "text/html", self._watcher.html())
        elif path == "/version":
            self._send(HTTPStatus.OK, "text/plain", self._watcher.version())
        else:
            self._send(HTTPStatus.NOT_FOUND, "text/plain", "the report is at /")

    def _send(self, status: HTTPStatus, kind: str, text: str) -> None:
        body = text.encode("utf-8", "replace")
        try:
            self.send_response(status)
            for name, value in (
                ("Content-Type", f"{kind}; charset=utf-8"),
                ("Content-Length", str(len(body))),
                ("Cache-Control", "no-store"),
                ("X-Content-Type-Options", "nosniff"),
            ):
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)
        except (BrokenPipeError, ConnectionResetError):
            pass  # the reader has gone

    def log_message(self, format: str, *arguments: object) -> None:
        """Nothing: a line a request would hide what the console is for."""


def _read_files(path: Path) -> list[Path]:
    inner = sorted(path.glob(f"{EVALUATIONS}/*"))
    named = [folder / name for folder in (path, *inner) for name in (CONFIG, METRICS, SUMMARY)]
    return [*named, *(file for folder in (path, *inner) for file in episode_files(folder))]


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;")
