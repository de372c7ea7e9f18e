"""Fixtures that every test may use."""

import os
import signal
import sys
from collections.abc import Iterator
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
# What `make quick` runs: all but tests marked `full` and files that load torch when they are read.
QUICK = (
    *("env", "sampler", "reward", "curriculum", "cases", "corpus", "report"),
    *("test_layout.py", "test_docs.py", "test_docs_commands.py", "test_papers.py"),
)
LOADS_TORCH = ("curriculum/test_batch_sampler.py",)


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--quick``: the tests that need no torch, as `make quick` runs them."""
    parser.addoption("--quick", action="store_true", help="only tests that need no torch and take no time")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """With ``--quick``, leave the other folders unread: torch alone takes seconds to import."""
    here = Path(__file__).parent
    if not config.getoption("--quick") or here not in collection_path.parents:
        return None
    place = collection_path.relative_to(here)
    return True if place.parts[0] not in QUICK or place.as_posix() in LOADS_TORCH else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With ``--quick``, leave out what is marked ``full`` and what opens a browser."""
    if config.getoption("--quick"):
        items[:] = [
            item
            for item in items
            if not item.get_closest_marker("full") and "browser" not in getattr(item, "fixturenames", ())
        ]


@pytest.fixture(autouse=True)
def no_torch(request: pytest.FixtureRequest) -> Iterator[None]:
    """With ``--quick``, fail the test that loads torch: it belongs to those that are left out."""
    loaded = "torch" in sys.modules
    yield
    if request.config.getoption("--quick") and "torch" in sys.modules and not loaded:
        pytest.fail("this test loads torch: mark it `full`, or name its file in LOADS_TORCH")


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Folder of real databases and questions (``SHARED_DATA``, else ``../shared/data``); skips where absent."""
    folder = Path(os.environ.get("SHARED_DATA", ROOT.parent / "shared" / "data"))
    if not (folder / "questions.jsonl").exists():
        pytest.skip(f"real data not found at {folder}; set SHARED_DATA to its folder")
    return folder
