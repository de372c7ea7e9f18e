"""The helpers themselves: a hub that takes anything, or a kill that comes late, would let every test pass."""

import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from hashlib import sha256
from pathlib import Path

import pytest

from tests.helpers.hub import Hub
from tests.helpers.launch import Starter
from tests.helpers.patience import patience


def ask(url: str, method: str, body: bytes = b"") -> int:
    request = urllib.request.Request(url, data=body or None, method=method)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code


@pytest.fixture
def hub():
    with Hub() as hub:
        yield hub


def test_the_hub_knows_no_repository_before_it_was_made(hub: Hub) -> None:
    assert ask(f"{hub.url}/api/models/ada/x", "GET") == 404
    made = b'{"name": "x", "organization": "ada", "private": true}'
    assert ask(f"{hub.url}/api/repos/create", "POST", made) == 200
    assert ask(f"{hub.url}/api/repos/create", "POST", made) == 409
    assert hub.repos == {"ada/x": True}
    assert ask(f"{hub.url}/api/models/ada/x", "GET") == 200


def test_the_hub_takes_no_file_whose_content_is_another(hub: Hub) -> None:
    content, oid = b"weights", sha256(b"weights").hexdigest()
    with pytest.raises((urllib.error.URLError, ConnectionError, OSError)):
        ask(f"{hub.url}/upload/{oid}", "PUT", b"other weights")
    assert not hub.large
    assert ask(f"{hub.url}/upload/{oid}", "PUT", content) == 200 and hub.large == {oid: content}


def test_the_hub_commits_no_large_file_that_was_not_sent(hub: Hub) -> None:
    line = b'{"key": "lfsFile", "value": {"path": "model.safetensors", "oid": "0"}}'
    with pytest.raises((urllib.error.URLError, ConnectionError, OSError)):
        ask(f"{hub.url}/api/models/ada/x/commit/main", "POST", line)
    assert not hub.files


def test_the_hub_breaks_and_refuses_when_told(hub: Hub) -> None:
    hub.break_after = 0
    assert ask(f"{hub.url}/upload/{sha256(b'a').hexdigest()}", "PUT", b"a") == 403
    hub.refuse = 503
    assert ask(f"{hub.url}/api/repos/create", "POST", b"{}") == 503
    assert ask(f"{hub.url}/api/nothing", "GET") == 404


@pytest.mark.long
def test_a_run_is_killed_as_it_opens_the_named_file_and_not_before(tmp_path: Path) -> None:
    starter, log = Starter(), tmp_path / "log"
    (tmp_path / "a.yaml").write_text("name: a\n")
    (tmp_path / "b.yaml").write_text("seed: none\n")
    words = [str(tmp_path / name) for name in ("a.yaml", "b.yaml")]
    try:
        assert starter.wait(starter.start(words, log)) == 2
        assert log.read_text().startswith("error: ") and "seed" in log.read_text()
        assert starter.wait(starter.start(words, log, kill_at="b.yaml")) == -signal.SIGKILL
        assert starter.wait(starter.start(words, log, kill_at="c.yaml")) == 2
    finally:
        starter.close()


def test_patience_grows_with_the_processes_that_wait() -> None:
    before = patience()
    spin = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(4 * len(os.sched_getaffinity(0)))
    ]
    try:
        assert before >= 1 and patience() >= 3
    finally:
        for process in spin:
            process.kill()
            process.wait()
