"""Every command in a code block of the documentation, read by the program that it starts; nothing is started."""

import re
import shlex
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from benchmarks import step
from scripts.finding import _parser as finding_parser
from sqale_grpo.corpus.command import _parser as corpus_parser
from sqale_grpo.evaluate.tables import _parser as tables_parser
from sqale_grpo.export.command import _parser as export_parser
from sqale_grpo.settings.evaluation import load_evaluation
from sqale_grpo.settings.load import load_config
from sqale_grpo.sweep.command import _parser as sweep_parser
from sqale_grpo.sweep.command import read_runs, sweep_files
from tests.conftest import ROOT
from tests.test_docs import PAGES
from tests.test_launch import dry_run

RECIPE = "configs/recipe.yaml configs/corpus/sqale.yaml"
# What a page leaves to the reader, or a loop of its own fills in.
BLANKS = {"$GPUS": "3", "$model": "runs/sqale", "$tables": "gold", "…": RECIPE, "RANK ADDRESS": "0 10.0.0.1", "$ ": ""}
BLANKS |= {"$size": "gold", "${size%%:*}": "gold"}


def commands(page: Path) -> list[str]:
    """The commands of a page's code blocks, and of its tables' launches."""
    text = page.read_text(encoding="utf-8")
    blocks = re.findall(r"```(?:bash|sh|console)?\n(.*?)```", text, flags=re.DOTALL)
    lines = [
        re.split(r" #| > ", line)[0].strip() for block in blocks for line in block.replace("\\\n", " ").splitlines()
    ]
    lines += re.findall(r"^\|[^|]*\| (?:on each: )?`((?:sbatch )?scripts/launch/[^`]*)`", text, flags=re.MULTILINE)
    for blank, value in BLANKS.items():
        lines = [line.replace(blank, value) for line in lines]
    return lines


def launch(words: list[str]) -> None:
    done = dry_run(words[0].rpartition("/")[2], *words[1:])
    assert done.returncode == 0, done.stderr


def evaluation(words: list[str]) -> None:
    if words[0] == "tables":
        tables_parser().parse_args(words[1:])
    elif words[0] != "replay":  # its own test reads an episode
        words = [word for word in words if word not in ("--keys", "--dry-run")]
        load_evaluation([word for word in words if "=" not in word], [word for word in words if "=" in word])


def sweep(words: list[str]) -> None:
    options = sweep_parser().parse_intermixed_args(words)
    assert read_runs(*sweep_files(options.inputs))


def benchmark(words: list[str]) -> None:
    own = [word for word in words if word != "--paper" and not word.startswith("shape.")]
    load_config([ROOT / "configs" / ("recipe.yaml" if "--paper" in words else "demo.yaml")], own)
    assert all(word.split("=")[0].removeprefix("shape.") in step.SHAPE for word in words if word.startswith("shape."))


def target(words: list[str]) -> None:
    assert re.search(rf"^{words[0]}:", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE)
    for arguments in (
        word.removeprefix("ARGS=") for word in words if word.startswith("ARGS=") and words[0] == "finding"
    ):
        sweep_files(["configs/sweep/demo_corpora.yaml", *finding_parser().parse_args(shlex.split(arguments)).inputs])


LAUNCHES: dict[str, Callable[[list[str]], object]] = {"scripts/launch/": launch, "sbatch scripts/launch/": launch}
READERS: dict[str, Callable[[list[str]], object]] = {
    "sqale-grpo evaluate ": evaluation,
    "sqale-grpo corpus ": lambda words: {"NAME", "[--json]"} & set(words) or corpus_parser().parse_args(words),
    "sqale-grpo sweep ": sweep,
    "sqale-grpo export ": lambda words: export_parser().parse_args(words),
    "python benchmarks/step.py": benchmark,
    "wandb sweep ": lambda words: read_runs([Path(words[0])], []),
    "make ": target,
}


def check(page: Path, readers: dict[str, Callable[[list[str]], object]]) -> None:
    """Let each command's program read it; where the page shows an error after it, that error is the answer."""
    lines = commands(page)
    for line, after in pairwise([*lines, ""]):
        for start, read in readers.items():
            if line.startswith(start) and "<" not in line:
                words = shlex.split(line)
                kept = len(start.split()) - (start.endswith("launch/"))
                try:
                    read(words[kept:])
                    said = ""
                except (Exception, SystemExit) as error:
                    said = str(error)
                shown = after.partition(RECIPE)[0].removesuffix(", ") if after.startswith("error: ") else ""
                assert shown in said if shown else not said, f"{page.name}: {line}: {said}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_is_read_by_its_program(page, monkeypatch):
    monkeypatch.chdir(ROOT)
    check(page, READERS)


@pytest.mark.long
@pytest.mark.full
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_launch_is_read_by_its_script(page, monkeypatch):
    monkeypatch.chdir(ROOT)
    check(page, LAUNCHES)


@pytest.mark.parametrize(("name", "at_least"), [("multi_gpu.md", 10), ("reproduce.md", 16), ("performance.md", 2)])
def test_the_commands_are_found(name, at_least):
    lines = commands(ROOT / "docs" / name)
    assert sum(line.startswith((*READERS, *LAUNCHES)) for line in lines) >= at_least
