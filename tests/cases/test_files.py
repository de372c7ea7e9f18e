"""Every case file is run: a file that no runner reads would pass unseen."""

from pathlib import Path

from tests.cases.conftest import FOLDER


def test_every_file_has_a_runner():
    kinds = [file.stem.removeprefix("test_") for file in Path(__file__).parent.glob("test_*.py")]
    unread = [file.name for file in FOLDER.glob("*.jsonl") if not file.name.startswith(tuple(kinds))]
    assert unread == []
