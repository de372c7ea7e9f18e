"""Case files: gives every ``test_<kind>.py`` here the lines of ``<kind>*.jsonl`` as its argument ``case``.

``CASES_DIR`` names another folder of case files to run instead of this one; a kind without a file there is skipped.
"""

import json
import os
from pathlib import Path

import pytest

FOLDER = Path(os.environ.get("CASES_DIR") or Path(__file__).parent)


def read_cases(file: Path) -> list[dict]:
    """The cases of a file, one JSON object a line; keeps ``\\u0000``, lone surrogates and Unicode line separators."""
    # newline="\n": str.splitlines would also cut at U+2028 and the like, which a JSON string may hold.
    with file.open(encoding="utf-8", errors="surrogatepass", newline="\n") as lines:
        return [json.loads(line) for line in lines if line.strip()]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Turn the argument ``case`` into one test a line, named by the line's id."""
    if "case" not in metafunc.fixturenames:
        return
    kind = Path(metafunc.module.__file__).stem.removeprefix("test_")
    cases = [case for file in sorted(FOLDER.glob(f"{kind}*.jsonl")) for case in read_cases(file)]
    if not any(FOLDER.glob("*.jsonl")):
        raise pytest.UsageError(f"no case files (*.jsonl) in {FOLDER}: CASES_DIR must name a folder that holds some")
    if not cases:
        skipped = pytest.param(None, marks=pytest.mark.skip(reason=f"no {kind}*.jsonl in {FOLDER}"), id="no-file")
        metafunc.parametrize("case", [skipped])
        return
    metafunc.parametrize("case", cases, ids=[case["id"] for case in cases])
