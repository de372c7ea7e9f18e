"""The roads of the documentation, walked: the commands of a page, as they stand there, one after the other."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.helpers.company import company_csv, company_database

pytestmark = pytest.mark.full


def road(page: str, heading: str) -> list[str]:
    """The commands of the first block below a heading."""
    text = (ROOT / page).read_text(encoding="utf-8")
    block = re.search(rf"^## {heading}\n.*?```bash\n(.*?)```", text, flags=re.DOTALL | re.MULTILINE)
    assert block is not None, f"{page} has no block of commands below {heading!r}"
    return [line for line in block[1].splitlines() if line and not line.startswith("#")]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder with `sqale-grpo` and `python` on the PATH, as an activated environment has them."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, words in (("sqale-grpo", "-m sqale_grpo"), ("python", "")):
        file = programs / name
        file.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {words} "$@"\n')
        file.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    return here


def walk(commands: list[str]) -> dict[str, str]:
    """Run each command in a shell; its output by command."""
    told = {}
    for command in commands:
        done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=600)
        fine = (0, 1) if command.startswith("sqale-grpo corpus check") else (0,)
        assert done.returncode in fine, f"{command}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
        told[command] = done.stdout
    return told


@pytest.mark.slow
def test_the_road_from_a_database_to_an_answer(place: Path) -> None:
    company_database(place / "company.sqlite")
    company_csv(place / "questions.csv")
    commands = road("docs/train_your_own.md", "The road")
    told = walk(commands)
    new, check, train, evaluate, report, export, ask = commands
    # Each command names the next one, and what it makes lies where it says.
    assert check in told[new]
    assert "questions.jsonl:" in told[check] and "dropped: unknown table: no such table: parcels" in told[check]
    for following in (evaluate, report, export):
        assert following in told[train]
    assert "of 11 episodes" in told[evaluate] or "11 of 11" in told[evaluate]
    assert (place / "runs/own/evaluations/own-checkpoint-8-jsonl-full/summary.json").is_file()
    assert (place / "runs/own/report.html").stat().st_size > 100_000
    assert "## Evaluation" in (place / "exports/own/README.md").read_text(encoding="utf-8")
    assert "sqale_agent.py --model exports/own" in told[export] and told[ask].strip()


@pytest.mark.slow
def test_the_road_of_the_readme(place: Path) -> None:
    (place / "path" / "to").mkdir(parents=True)
    company_database(place / "path" / "to" / "shop.sqlite")
    commands = road("README.md", "Train on your own database")
    told = walk(commands)
    assert "60 questions are proposed" in told[commands[0]]
    assert list((place / "runs/own/evaluations").glob("*/summary.json"))


def test_the_papers_block_of_the_readme_names_the_run_that_it_makes(place: Path) -> None:
    (plan,) = road("README.md", "The paper's run")
    told = walk([f"{plan} 2>&1"])[f"{plan} 2>&1"]
    found = re.search(r"run folder\s*│\s*(\S+)", told)
    assert found is not None, told
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    block = text.split("## The paper's run")[1].split("\n## ")[0]
    assert set(re.findall(r"runs/[\w-]+", block)) == {found[1]}
