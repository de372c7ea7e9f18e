"""What the programs print where no terminal is: as wide as it needs, in any encoding."""

import os
import subprocess
import sys

from tests.conftest import ROOT


def plan(**environment: str) -> subprocess.CompletedProcess[str]:
    words = [
        sys.executable,
        "-m",
        "sqale_grpo",
        "train",
        "configs/recipe.yaml",
        "configs/corpus/sqale.yaml",
        "--dry-run",
    ]
    kept = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "PYTHONIOENCODING")}
    return subprocess.run(words, cwd=ROOT, env=kept | environment, capture_output=True, text=True, errors="replace")


def test_piped_tables_are_as_wide_as_they_need() -> None:
    done = plan()
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert max(map(len, lines)) > 100 and not any("…" in line for line in lines)
    assert any("ZeRO-3" in line and "FSDP2" in line for line in lines)


def test_eighty_columns_are_respected() -> None:
    done = plan(COLUMNS="80")
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_an_encoding_without_our_characters_ends_nothing() -> None:
    done = plan(PYTHONIOENCODING="ascii", COLUMNS="200")
    assert done.returncode == 0, done.stderr
    assert "batch shape by number of processes" in done.stdout
