"""The documentation: links lead somewhere, and the fidelity page and the commands name only what exists."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from sqale_grpo.settings.load import known_keys, load_config

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
STATES = {"as published", "assumption", "earlier", "not shown", "not here"}
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def without_code(text: str) -> str:
    return re.sub(r"```.*?```|`[^`\n]*`", "", text, flags=re.DOTALL)


def anchor(heading: str) -> str:
    """The fragment that a heading gets on a code host."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    for link in LINK.findall(without_code(page.read_text(encoding="utf-8"))):
        if link.startswith(("http://", "https://", "mailto:")):
            continue
        name, _, fragment = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        assert target.exists(), f"{link} leads nowhere"
        if fragment:
            headings = re.findall(r"^#+ (.*)$", target.read_text(encoding="utf-8"), flags=re.MULTILINE)
            assert fragment in {anchor(heading) for heading in headings}, f"{link}: no such heading"


PLACE = re.compile(r"`((?:[a-z_]+|\.[a-z]+)/[\w./*-]+\.(?:py|sh|yaml|yml|json|jsonl|sbatch|txt|svg))(?::\w+)?`")
# Made by a command, or by the reader; or a file of a published corpus.
MADE = ("build/", "data/", "runs/", "train/train", "databases/", "mimic_iii/", "my_data/", "exports/")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_file_that_a_page_names_is_there(page: Path) -> None:
    """The changelog and a table of renames may speak of what is gone."""
    places = PLACE.findall(page.read_text(encoding="utf-8")) if page.name != "CHANGELOG.md" else ()
    for place in places:
        assert "NAME" in place or place.startswith(MADE) or list(ROOT.glob(place)), f"{page.name}: there is no {place}"


OLD = re.compile(
    r"(?:python -m|-m) (?:train|corpus|evaluate|reward|env|report|export|sweep|agent|demo)\b"
    r"|\bpython scripts/(?:demo|report|export|sweep|build_agent)\b"
    r"|^(?:from|import|>>> from) (?:env|sampler|reward|corpus|curriculum|train|evaluate|report)\b",
    re.MULTILINE,
)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_no_page_names_a_command_or_module_of_before(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    if page.name == "CHANGELOG.md":
        text = re.sub(r"^\|.*$", "", text, flags=re.MULTILINE)  # its table is of old names and new ones
    assert not [match.group() for match in OLD.finditer(text)]


def test_the_index_leads_to_every_page() -> None:
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    linked = {(ROOT / "docs" / link.partition("#")[0]).resolve() for link in LINK.findall(index)}
    pages = set((ROOT / "docs").rglob("*.md")) - {ROOT / "docs" / "index.md"}
    assert pages <= linked, f"docs/index.md does not name {sorted(page.name for page in pages - linked)}"


def fidelity_rows() -> Iterator[list[str]]:
    for line in (ROOT / "docs" / "fidelity.md").read_text(encoding="utf-8").splitlines():
        if line.startswith("| ") and not line.startswith("| The card says"):
            yield [cell.strip() for cell in line.strip().strip("|").split("|")]


def test_every_fidelity_row_names_a_key_or_a_place_that_exists() -> None:
    rows = list(fidelity_rows())
    assert len(rows) > 80
    for row in rows:
        assert len(row) == 4, row
        statement, _, where, state = row
        assert state in STATES, row
        places = re.findall(r"`([^`]+)`", where)
        assert statement and places, row
        for place in places:
            assert place in known_keys() or exists(place), f"{place}: neither a key nor a place ({statement})"


def exists(place: str) -> bool:
    """Whether ``path`` or ``path:name`` is there; the name must be defined in the file."""
    path, _, name = place.partition(":")
    if not (ROOT / path).exists():
        return False
    text = (ROOT / path).read_text(encoding="utf-8") if name else ""
    return not name or re.search(rf"^\s*(def|class) {re.escape(name)}\b", text, flags=re.MULTILINE) is not None


def test_every_key_that_is_no_knob_of_ours_has_a_fidelity_row() -> None:
    named = {place for row in fidelity_rows() for place in re.findall(r"`([^`]+)`", row[2])}
    facts = {name for name, field in known_keys().items() if field.metadata["source"] != "ours"}
    # The loader and the split say what corpus it is; the rows of the three corpus files cover them.
    assert facts - named <= {"corpus.name", "corpus.split", "evaluate.split"}


def test_assumptions_are_called_assumptions() -> None:
    """A row whose keys are all assumptions may not claim to be published."""
    for statement, _, where, state in fidelity_rows():
        keys = [place for place in re.findall(r"`([^`]+)`", where) if place in known_keys()]
        sources = {known_keys()[name].metadata["source"] for name in keys}
        if sources == {"assumption"}:
            assert state == "assumption", statement


def test_corpus_files_change_the_corpus_and_the_curriculum_alone() -> None:
    """One recipe for every corpus: what differs is the data and the strength of the length curriculum."""
    for path in (ROOT / "configs" / "corpus").glob("*.yaml"):
        stated = yaml.safe_load(path.read_text(encoding="utf-8"))
        assert set(stated) == {"name", "corpus", "curriculum"}
        assert set(stated["curriculum"]) == {"strength"}
    recipe = ROOT / "configs" / "recipe.yaml"
    strengths = {
        name: load_config([recipe, ROOT / "configs" / "corpus" / f"{name}.yaml"]).curriculum.strength
        for name in ("sqale", "bird", "synsql")
    }
    assert strengths == {"sqale": 1.0, "bird": 0.0, "synsql": 0.5}


def commands() -> Iterator[tuple[str, str]]:
    """(page, line) of every ``sqale-grpo train`` command in a code block of the documentation."""
    for page in PAGES:
        for block in re.findall(
            r"```(?:bash|sh|console)?\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL
        ):
            for line in block.replace("\\\n", " ").splitlines():
                if "sqale-grpo train " in line:
                    yield page.relative_to(ROOT).as_posix(), re.split(r" [#>]", line)[0].strip()


@pytest.mark.full
def test_every_train_command_of_the_docs_is_valid() -> None:
    found = list(commands())
    assert found
    for page, line in found:
        words = [word for word in line.split("sqale-grpo train ", 1)[1].split() if not word.startswith("--")]
        files = [ROOT / word for word in words if "=" not in word]
        load_config(files, [word for word in words if "=" in word])
        assert files or "--keys" in line, f"{page}: {line}"
