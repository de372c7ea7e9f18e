"""Watching: a run in the making is served on this machine alone, grows on the page, and ends at Ctrl-C."""

import http.client
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from sqale_grpo.corpus import PreparedCorpus
from sqale_grpo.report.folders import EvaluationFolder, RunFolder
from sqale_grpo.report.page import Page as Report
from sqale_grpo.report.watch import HOST, Watcher, make_server
from tests.helpers.reports import add_update, make_run

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def young(place: Path, corpus: PreparedCorpus) -> Iterator[Path]:
    """A run that has begun and finished no update."""
    run = make_run(place, corpus, "young", 0)
    yield run
    shutil.rmtree(run)


@pytest.fixture
def port(young: Path) -> Iterator[int]:
    server = make_server([young], Report(), 0)
    thread = threading.Thread(target=lambda: server.serve_forever(0.05))
    thread.start()
    yield server.server_address[1]
    server.shutdown()
    thread.join()
    server.server_close()


def get(port: int, path: str, **headers: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection(HOST, port)
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text


def test_the_page_is_made_anew_only_when_a_file_changed(young: Path, port: int, corpus: PreparedCorpus) -> None:
    waiting, first = get(port, "/"), get(port, "/version")
    assert "its first update is not finished yet" in waiting[1]
    assert get(port, "/") == waiting and get(port, "/version") == first
    add_update(young, corpus, 0)
    assert get(port, "/version") != first
    assert "all 8 episodes" in get(port, "/")[1]


def test_a_folder_that_is_no_run_yet_is_waited_for(tmp_path: Path) -> None:
    server = make_server([tmp_path], Report(), 0)
    thread = threading.Thread(target=server.handle_request)
    thread.start()
    status, text = get(server.server_address[1], "/")
    thread.join()
    server.server_close()
    assert status == 200 and "Nothing to show yet" in text and "it holds no config.yaml" in text


def test_nothing_else_is_served_and_no_other_name_is_answered(port: int) -> None:
    assert get(port, "/../config.yaml")[0] == 404
    for name in ("evil.example:80", "evil.example", "", f"{HOST}.evil.example:80"):
        assert get(port, "/version", Host=name)[0] == 403
    # On port 80 a browser names none.
    for name in (HOST, "localhost", f"localhost:{port}"):
        assert get(port, "/version", Host=name)[0] == 200


def test_a_run_that_is_deleted_is_waited_for(
    young: Path, corpus: PreparedCorpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_update(young, corpus, 0)
    watcher = Watcher([young], Report())
    assert "all 8 episodes" in watcher.html()
    (young / "config.yaml").rename(young / "gone.yaml")
    assert "Nothing to show yet" in watcher.html()
    (young / "gone.yaml").rename(young / "config.yaml")
    assert "all 8 episodes" in watcher.html()
    # Deleted while the page is made.
    add_update(young, corpus, 1)
    made = Report.render

    def late(page: Report, folders: Sequence[RunFolder | EvaluationFolder], version: str = "") -> str:
        shutil.rmtree(young / "episodes")
        return made(page, folders, version)

    monkeypatch.setattr(Report, "render", late)
    assert "000000.parquet" in watcher.html()


@pytest.mark.long
def test_an_open_page_follows_the_run(
    young: Path, port: int, corpus: PreparedCorpus, visit: Callable[..., Page]
) -> None:
    add_update(young, corpus, 0)
    page = visit(f"http://{HOST}:{port}/")
    expect(page.locator("#count")).to_have_text("8 of 8 episodes")
    add_update(young, corpus, 1)
    expect(page.locator("#count")).to_have_text("16 of 16 episodes", timeout=60_000)
    # Who reads an episode is asked first, and finds it open again afterwards.
    page.locator("#list button").nth(5).click()
    question = page.locator("#episode h3").inner_text()
    add_update(young, corpus, 2)
    page.get_by_role("button", name=re.compile("The run went on")).click(timeout=60_000)
    expect(page.locator("#count")).to_have_text("24 of 24 episodes")
    expect(page.locator("#episode h3")).to_have_text(question)


def test_ctrl_c_ends_the_program(run: Path) -> None:
    program = [sys.executable, "-m", "sqale_grpo.report", str(run), "--watch", "--port", "0"]
    process = subprocess.Popen(
        program, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ}
    )
    assert process.stdout
    line = process.stdout.readline()
    found = re.search(r"http://127\.0\.0\.1:(\d+)/", line)
    assert found, line
    assert get(int(found[1]), "/version")[0] == 200
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=60)
    assert (process.returncode, error) == (0, "")
