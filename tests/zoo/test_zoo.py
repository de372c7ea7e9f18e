"""Every file of the zoo is read right, or refused where that is right; and none of them is touched by it."""

import hashlib
import json
from pathlib import Path

import pytest

from sqale_grpo.env.limits import Limits, SqlError
from sqale_grpo.env.protocol import ToolCall
from sqale_grpo.env.sandbox import Sandbox
from sqale_grpo.env.tools import EpisodeLimits, run_tool
from sqale_grpo.sampler import open_episode_database
from tests.zoo.make import Animal, main, make_zoo
from tests.zoo.table import immutable, ours, outcome, plain, table

LIMITS = Limits(seconds=20.0)
# Virtual tables that no SQLite here can open, each beside a good table.
UNUSABLE = ("missing_module.sqlite", "module_not_utf8.sqlite", "damaged_rtree.sqlite", "damaged_fulltext.sqlite")


@pytest.fixture(scope="module")
def zoo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Animal]]:
    folder = tmp_path_factory.mktemp("zoo")
    return folder, make_zoo(folder)


def digests(folder: Path) -> dict[str, str]:
    files = sorted(path for path in folder.rglob("*") if path.is_file() and not path.name.endswith("-shm"))
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.mark.parametrize("immutable", [False, True], ids=["live", "immutable"])
def test_rows_and_columns(zoo: tuple[Path, list[Animal]], immutable: bool) -> None:
    folder, animals = zoo
    before = digests(folder)
    for animal in animals:
        path = folder / animal.file
        if animal.may_refuse:
            with pytest.raises(ValueError, match=r"holds (a change that a program did not complete|changes that a p)"):
                Sandbox(path, LIMITS, immutable=immutable)
            continue
        with Sandbox(path, LIMITS, immutable=immutable) as sandbox:
            assert sandbox.execute(animal.query).rows == animal.rows, animal.file
            assert sandbox.schema.columns(animal.table) == animal.columns, animal.file
    assert digests(folder) == before


def test_tools_answer_and_end_no_episode(zoo: tuple[Path, list[Animal]]) -> None:
    folder, animals = zoo
    limits = EpisodeLimits()
    for animal in (each for each in animals if not each.may_refuse):
        with Sandbox(folder / animal.file, LIMITS) as sandbox:
            for tool, args in (
                ("list_tables", {}),
                ("describe_table", {"table_name": animal.table}),
                ("sample_rows", {"table_name": animal.table}),
                ("distinct_values", {"table_name": animal.table, "column_name": animal.columns[0]}),
                ("foreign_keys", {}),
            ):
                result = run_tool(ToolCall(tool, args), sandbox, limits)
                assert result.error is None, (animal.file, tool, result.text)
                assert len(result.text) < 1.1 * limits.list_chars, (animal.file, tool)


def test_all_tables_can_be_listed_page_by_page(zoo: tuple[Path, list[Animal]]) -> None:
    names: list[str] = []
    after: dict[str, str] = {}
    with Sandbox(zoo[0] / "many_tables.sqlite", LIMITS) as sandbox:
        while True:
            first, *rest = run_tool(ToolCall("list_tables", after), sandbox, EpisodeLimits()).text.split("\n")
            names += first.split(", ")
            if not rest:
                break
            after = json.loads(rest[0][rest[0].index("{") : rest[0].rindex("}") + 1])["args"]
        assert names == list(sandbox.schema.tables)


def test_the_sampler_builds_from_them(zoo: tuple[Path, list[Animal]]) -> None:
    folder, animals = zoo
    for animal in (each for each in animals if not each.may_refuse and "wal.sqlite" not in each.file):
        with Sandbox(folder / animal.file, LIMITS) as sandbox:
            tables = sandbox.schema.tables
        if animal.file in UNUSABLE:
            tables = ("t",)
        with open_episode_database(folder / animal.file, tables) as built, Sandbox(built.path, LIMITS) as sandbox:
            assert set(sandbox.schema.tables) == set(tables), animal.file
            if "v1" not in animal.query:  # views are left out
                assert sandbox.execute(animal.query).rows == animal.rows, animal.file


def test_others_can_make_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "zoo")]) == 0
    lines = (tmp_path / "zoo" / "answers.jsonl").read_text(encoding="utf-8").splitlines()
    assert f"{len(lines)} files" in capsys.readouterr().out
    assert all((tmp_path / "zoo" / json.loads(line)["file"]).exists() for line in lines)


def test_a_damaged_index_says_so_in_its_modules_words(zoo: tuple[Path, list[Animal]]) -> None:
    for file, words in (("rtree", "undersize RTree blobs"), ("fulltext", "invalid fts5 file format")):
        with Sandbox(zoo[0] / f"damaged_{file}.sqlite", LIMITS) as sandbox:
            with pytest.raises(SqlError, match=f"other: {words}"):
                sandbox.execute("SELECT * FROM i")
            assert sandbox.schema.find("i") == "i" and sandbox.schema.columns("i") == ()


def test_the_table_says_what_others_make_of_it(tmp_path: Path) -> None:
    rows = [line.strip("| \n").split(" | ") for line in table().splitlines()]
    (head, _, *animals) = rows
    assert head[3:] == ["this project", "`sqlite3.connect(path)`", "with `immutable=1`"]
    found = {row[0].strip("`"): row[3:] for row in animals}
    assert {each[0] for each in found.values()} == {"right", "refused"}
    assert found["open_wal.sqlite"][1:] == ["right, **changes files**", "**wrong: `old`**"]
    assert found["hot.sqlite"][0] == "refused" and found["hot.sqlite"][2].startswith("**wrong")
    page = (Path(__file__).parents[2] / "docs" / "database_files.md").read_text(encoding="utf-8")
    assert all(f"| `{file}` |" in page for file in found)
    # Each reader is one that can be wrong: it is told apart from a right one.
    (animal,) = [each for each in make_zoo(tmp_path / "zoo") if each.file == "kinds.sqlite"]
    other = Animal(animal.file, animal.about, animal.query, [(0,)], animal.table, animal.columns)
    for read in (ours, plain, immutable):
        assert outcome(read, tmp_path / "zoo", animal) == "right"
        assert outcome(read, tmp_path / "zoo", other).startswith("**wrong: `6`, `4`")
