"""Fixtures that every test may use."""

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Folder of real databases and questions (``SHARED_DATA``, else ``../shared/data``); skips where absent."""
    folder = Path(os.environ.get("SHARED_DATA", ROOT.parent / "shared" / "data"))
    if not (folder / "questions.jsonl").exists():
        pytest.skip(f"real data not found at {folder}; set SHARED_DATA to its folder")
    return folder
