"""The papers around the code: workflow, templates, citation, lists that stand twice."""

import re
import shutil
import subprocess
import tomllib
from typing import Any

import pytest
import yaml

from tests.conftest import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
FORMS = sorted(path for path in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml") if path.name != "config.yml")


def read_yaml(path: Any) -> dict[str, Any]:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def jobs() -> dict[str, dict[str, Any]]:
    return read_yaml(ROOT / ".github" / "workflows" / "ci.yml")["jobs"]


def test_every_target_that_is_run_is_one_of_the_makefile():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    texts = [path.read_text(encoding="utf-8") for path in (*WORKFLOWS, ROOT / ".ci" / "run")]
    targets = {name for text in texts for name in re.findall(r"\bmake ([a-z-]+)", text)}
    assert {"lint", "quick", "test", "browser"} <= targets
    for target in targets:
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE), f"there is no target {target}"


def test_what_runs_on_a_fresh_clone_lints():
    lines = (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    assert {"make lint", "make test"} <= set(lines) and lines[-1] == "exec make long"


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_is_complete(path):
    workflow = read_yaml(path)
    assert workflow["name"] and workflow[True]  # YAML reads the key "on" as true
    assert workflow["permissions"] == {"contents": "read"}, "a workflow that only checks needs no more"
    for name, job in workflow["jobs"].items():
        assert {"runs-on", "timeout-minutes", "steps"} <= set(job), name
        needs = job.get("needs", [])
        assert set([needs] if isinstance(needs, str) else needs) <= set(workflow["jobs"]), name
        for step in job["steps"]:
            assert ("uses" in step) != ("run" in step), f"{name}: a step either uses an action or runs a command"


def test_the_tests_run_on_every_python_that_is_supported():
    oldest = PROJECT["project"]["requires-python"].removeprefix(">=")
    versions = jobs()["test"]["strategy"]["matrix"]["python-version"]
    assert all(isinstance(version, str) for version in versions), "3.10 without quotes is the number 3.1"
    assert versions == [oldest, "3.12", "3.13"]


@pytest.mark.skipif(shutil.which("actionlint") is None, reason="actionlint is not installed")
def test_actionlint_finds_nothing():
    done = subprocess.run(["actionlint", *map(str, WORKFLOWS)], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.name)
def test_an_issue_form_asks_something(path):
    form = read_yaml(path)
    assert {"name", "description", "body"} <= set(form)
    for field in form["body"]:
        assert field["type"] in {"markdown", "textarea", "input", "dropdown", "checkboxes"}
        asked = field["attributes"]["value" if field["type"] == "markdown" else "label"]
        assert asked.strip()
    ids = [field["id"] for field in form["body"] if "id" in field]
    assert ids and len(ids) == len(set(ids))


def test_the_citation_is_of_this_version():
    citation = read_yaml(ROOT / "CITATION.cff")
    assert (
        citation["cff-version"] == "1.2.0" and citation["message"] and citation["title"] == PROJECT["project"]["name"]
    )
    assert citation["authors"] == [{"name": "The sqale-grpo contributors"}]
    assert citation["version"] == PROJECT["project"]["version"]
    assert citation["license"] == PROJECT["project"]["license"]
    heading = f"## {citation['version']} - {citation['date-released']}\n"
    assert heading in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), f"the changelog has no {heading.strip()!r}"


def test_the_changelog_begins_with_what_is_not_released():
    versions = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert versions[0] == "Unreleased" and len(versions) == len(set(versions))
    assert all(re.fullmatch(r"\d+\.\d+\.\d+ - \d{4}-\d{2}-\d{2}", version) for version in versions[1:])


def test_mypy_reads_every_package_that_is_installed():
    installed = set(PROJECT["tool"]["setuptools"]["packages"])
    read = {*PROJECT["tool"]["mypy"]["packages"], "sqale_grpo"}
    assert read == {name for name in installed if name.count(".") < 2}, "mypy reads what lies inside a package with it"
    inside = [
        path.relative_to(ROOT).parent.parts for path in (*ROOT.glob("*/__init__.py"), *ROOT.glob("*/*/__init__.py"))
    ]
    folders = {".".join(("sqale_grpo", *parts)) for parts in inside if parts[0] not in ("tests", "build")}
    assert folders == installed - {"sqale_grpo"}, "a folder with an __init__.py is a package"
