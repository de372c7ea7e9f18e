"""Files that are older, damaged or gone: the page is made without them, says so, and counts only what it knows."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sqale_grpo.corpus import PreparedCorpus
from sqale_grpo.report.counts import COLUMNS, count_file
from sqale_grpo.report.curves import run_curves
from sqale_grpo.report.episodes import read_groups
from sqale_grpo.report.folders import RunFolder, open_folder, open_folders
from sqale_grpo.report.page import Page
from sqale_grpo.rollout.record import SCHEMA, read_metrics
from tests.helpers.reports import make_run
from tests.report.test_folders import make_evaluation


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory, corpus: PreparedCorpus) -> Path:
    """A run of two updates that nobody may change."""
    return make_run(tmp_path_factory.mktemp("base"), corpus, "base", 2)


@pytest.fixture
def copy(base: Path, tmp_path: Path) -> Path:
    return shutil.copytree(base, tmp_path / "copy")


def rewrite(run: Path, change: Callable[[pa.Table], pa.Table]) -> None:
    for path in sorted((run / "episodes").glob("*.parquet")):
        pq.write_table(change(pq.read_table(path)), path)


@pytest.mark.full
def test_a_run_of_a_version_without_a_column_is_shown(base: Path, tmp_path: Path) -> None:
    for name in SCHEMA.names:
        run = shutil.copytree(base, tmp_path / name)
        rewrite(run, lambda table, name=name: table.drop_columns([name]))  # type: ignore[misc]
        folder = open_folder(run)
        assert isinstance(folder, RunFolder)
        counts = [count_file(path) for path in folder.files]
        curves = run_curves(folder, counts)
        for tier in ("equivalent", "invalid"):
            # From the episodes, or from what the trainer logged: never a 0 for what is not known.
            assert curves.get(tier) == pytest.approx([values[f"{tier}_rate"] for values in folder.metrics]), name
        assert curves.get("gate") == pytest.approx([values["gate_rate"] for values in folder.metrics]), name
        rows, notes = read_groups([group for count in counts for group in count.groups])
        assert sum(map(len, rows.values())) == 16 and not notes
        assert all(set(row) == set(SCHEMA.names) for members in rows.values() for row in members)
        assert f"{name}: all 16 episodes" in Page(8).render([folder])


def test_columns_without_values_and_files_without_rows(copy: Path) -> None:
    names = [name for name in SCHEMA.names if name != "update"]
    rewrite(
        copy,
        lambda t: pa.table(
            [t["update"], *(pa.nulls(len(t), SCHEMA.field(n).type) for n in names)], SCHEMA.names[:1] + names
        ),
    )
    assert "copy: all 16 episodes" in Page().render(open_folders([copy]))
    rewrite(copy, lambda table: table.slice(0, 0))
    assert "copy: all 0 episodes" in Page().render(open_folders([copy]))


def test_a_file_damaged_where_it_is_not_counted_is_counted_and_named(copy: Path) -> None:
    path = copy / "episodes" / "000001.parquet"
    turns = [
        c
        for c in range(pq.read_metadata(path).num_columns)
        if pq.read_metadata(path).schema.column(c).path.startswith("turns")
    ]
    chunk = pq.read_metadata(path).row_group(0).column(turns[0])
    data = bytearray(path.read_bytes())
    start = chunk.dictionary_page_offset or chunk.data_page_offset
    data[start : start + chunk.total_compressed_size] = b"\xff" * chunk.total_compressed_size
    path.write_bytes(data)
    html = Page().render(open_folders([copy]))
    assert "the episodes of 000001.parquet cannot be read, only counted" in html
    assert "copy: 8 of 16 episodes, as 2 of 4 whole groups" in html


def test_a_question_that_an_update_asks_twice_is_two_groups(copy: Path) -> None:
    rewrite(copy, lambda table: pa.concat_tables([table.slice(0, 4), table.slice(0, 4)]))
    counts = count_file(copy / "episodes" / "000000.parquet")
    assert [(group.first, len(group.tiers)) for group in counts.groups] == [(0, 4), (4, 4)]
    assert set(COLUMNS) <= set(SCHEMA.names)


@pytest.mark.parametrize(
    "line",
    ["[1]", "5", "null", "{}", '{"update": null}', '{"update": "1"}', '{"update": Infinity}', '{"update": -1}',
     '{"update": 1.5}', '{"update": true}', "[" * 100_000, '{"update": 1, "loss"', "\0\ufffd"],
)  # fmt: skip
def test_a_line_that_is_no_metrics_is_left_out_and_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text(f'{{"update": 0, "a\u2028b": 1}}\n{line}\n{{"update": 2, "loss": NaN, "kl": Infinity}}\n')
    metrics, notes = read_metrics(path)
    assert [values["update"] for values in metrics] == [0, 2]
    assert notes == ["line 2 of metrics.jsonl is cut off or damaged and was left out"]


@pytest.mark.parametrize(
    ("summary", "note"),
    [("[1]", True), ("5", True), ("null", True), ("[" * 100_000, True), ('{"intervals": 5}', False),
     ('{"equivalent": 0.5, "intervals": {"equivalent": [null, 1]}}', False),
     ('{"equivalent": 0.5, "intervals": {"equivalent": 0.3}, "date": 5}', False),
     ('{"equivalent": NaN, "ended_by": {"a": null, "b": "c"}}', False)],
)  # fmt: skip
def test_a_summary_with_other_values_is_no_obstacle(
    tmp_path: Path, corpus: PreparedCorpus, summary: str, note: bool
) -> None:
    folder = make_evaluation(tmp_path / "odd", corpus, right=True)
    (folder / "summary.json").write_text(summary)
    html = Page().render(open_folders([folder]))
    assert ("summary.json is damaged and was left out" in html) is note
    assert "odd: all 2 episodes" in html
