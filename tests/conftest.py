"""Fixtures that every test may use."""

import os
import signal
from pathlib import Path

import pytest
from hypothesis import settings

# No test asks the network for anything: a model or data set that is not there is a failure, not a download.
os.environ["HF_HUB_OFFLINE"] = "1"
# A shell that starts this in the background has it ignore Ctrl-C, and every process of the tests would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
# The machine decides how long an example takes; `make fuzz` runs the same properties on many more of them.
settings.register_profile("default", deadline=None)
settings.register_profile("fuzz", deadline=None, max_examples=2_000)
settings.load_profile("default")

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Folder of real databases and questions (``SHARED_DATA``, else ``../shared/data``); skips where absent."""
    folder = Path(os.environ.get("SHARED_DATA", ROOT.parent / "shared" / "data"))
    if not (folder / "questions.jsonl").exists():
        pytest.skip(f"real data not found at {folder}; set SHARED_DATA to its folder")
    return folder
