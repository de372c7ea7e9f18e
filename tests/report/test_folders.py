"""Folders: a run, an evaluation, and what is neither; half-written lines are left out and named."""

import dataclasses
import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sqale_grpo.corpus import PreparedCorpus
from sqale_grpo.evaluate.records import write_records
from sqale_grpo.report.databases import Databases, Wanted
from sqale_grpo.report.evaluations import DIFFERENCE, MISSING, table
from sqale_grpo.report.folders import (
    EvaluationFolder,
    ReportError,
    RunFolder,
    distinct_names,
    open_folder,
    open_folders,
)
from sqale_grpo.report.page import Page, write_report
from sqale_grpo.settings.evaluation import EvaluationConfig
from sqale_grpo.settings.load import save_config, to_yaml
from tests.helpers.programs import program
from tests.helpers.reports import TABLES, make_config, make_run, play_update

main = program("report")

ROOT = Path(__file__).resolve().parents[2]


def test_a_run_is_read(run: Path) -> None:
    folder = open_folder(run)
    assert isinstance(folder, RunFolder) and folder.config
    assert (folder.name, folder.config.name, len(folder.files), folder.notes) == ("alpha", "alpha", 6, ())
    assert [values["update"] for values in folder.metrics] == list(range(6))


def test_what_is_no_run_gets_one_sentence(tmp_path: Path, run: Path) -> None:
    with pytest.raises(ReportError, match=r"there is no folder .*gone: name a run's folder"):
        open_folder(tmp_path / "gone")
    with pytest.raises(ReportError, match=r"is no run folder: it holds no config.yaml; name a run's folder"):
        open_folder(tmp_path)
    with pytest.raises(ReportError, match=r"did you mean .*/alpha\?"):
        open_folder(run.parent)
    (tmp_path / "config.yaml").write_text("a: [1")
    with pytest.raises(ReportError, match="no valid YAML"):
        open_folder(tmp_path)


def test_a_run_whose_first_update_is_not_finished(tmp_path: Path) -> None:
    config = make_config(tmp_path, "young")
    folder = tmp_path / "young"
    folder.mkdir()
    save_config(config, folder / "config.yaml")
    with pytest.raises(ReportError, match="the first update is not finished yet; --watch shows it"):
        write_report([folder], tmp_path / "out.html")
    assert not (tmp_path / "out.html").exists()
    assert "its first update is not finished yet" in Page().render(open_folders([folder]))


def test_half_written_and_damaged_files_are_left_out_and_named(tmp_path: Path, corpus: PreparedCorpus) -> None:
    run = make_run(tmp_path, corpus, "torn", 3)
    lines = (run / "metrics.jsonl").read_text().splitlines()
    (run / "metrics.jsonl").write_text("\n".join([lines[0], lines[1], lines[2][:40]]))
    (run / "episodes" / "000001.parquet").write_bytes(b"PAR1 no parquet")
    (run / "episodes" / "000003.partial").write_bytes(b"half")
    html = Page().render(open_folders([run]))
    assert "line 3 of metrics.jsonl is cut off or damaged and was left out" in html
    assert "000001.parquet cannot be read and was left out" in html
    assert "3.partial" not in html


def test_a_configuration_of_another_version_is_no_obstacle(tmp_path: Path, corpus: PreparedCorpus) -> None:
    run = make_run(tmp_path, corpus, "old", 2)
    text = (run / "config.yaml").read_text()
    (run / "config.yaml").write_text(text.replace("  warmup_updates:", "  gone_key: 1\n  warmup_updates:"))
    folder = open_folder(run)
    assert isinstance(folder, RunFolder) and folder.config is None
    html = Page().render([folder])
    assert "config.yaml cannot be read, so planned curves and databases are missing" in html


def test_names_are_told_apart() -> None:
    assert distinct_names([Path("/a/x"), Path("/a/y")]) == ["x", "y"]
    assert distinct_names([Path("/a/x"), Path("/b/x")]) == ["a/x", "b/x"]


def make_evaluation(folder: Path, corpus: PreparedCorpus, right: bool) -> Path:
    """Two questions, answered rightly or not, in the layout of ``evaluate``."""
    config = dataclasses.replace(EvaluationConfig(), name=folder.name, model="tiny")
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(to_yaml(config))
    played = [row for row in play_update(corpus, 0, ["q0", "q1"]) if row["candidate"] == (0 if right else 1)]
    rows = [row | {"update": None, "candidate": 0, "index": n, "unstable": ""} for n, row in enumerate(played)]
    write_records(folder, 0, rows)
    lost = {"identity": "3fa9c1d20b77", "missing_share": 0.125 if right else 0.0}
    summary = lost | {
        "n": 2,
        "equivalent": float(right),
        "rounds": 4.0,
        "ended_by": {"submit_sql": 1.0},
        "model": "tiny",
    }
    intervals = {"intervals": {"equivalent": [0.2, 0.8], "rounds": None}}
    (folder / "summary.json").write_text(json.dumps(summary | intervals))
    return folder


def test_evaluations_of_a_run_and_alone_become_a_table(tmp_path: Path, corpus: PreparedCorpus) -> None:
    run = make_run(tmp_path, corpus, "judged", 1)
    make_evaluation(run / "evaluations" / "before", corpus, right=False)
    make_evaluation(run / "evaluations" / "after", corpus, right=True)
    folder = open_folder(run)
    assert isinstance(folder, RunFolder)
    before, after = folder.evaluations
    assert after.name == "judged/after" and after.config and after.config.model == "tiny"
    rows = dict(table([before, after]))
    assert rows["equivalent"] == ["0.0% (20.0% to 80.0%)", "100.0% (20.0% to 80.0%)"]
    assert rows[DIFFERENCE] == ["–", "+100.0% (-34.9% to +100.0%)"]
    assert rows["rounds"] == ["4.00", "4.00"] and rows["model"] == ["tiny", "tiny"]
    assert rows["identity"] == ["3fa9c1d20b77"] * 2 and rows[MISSING] == ["–", "12.5%"]
    assert "reward" not in rows, "nobody measured it"
    alone = open_folder(run / "evaluations" / "after")
    assert isinstance(alone, EvaluationFolder)
    html = Page().render([folder, alone])
    assert "judged/before" in html and "all 2 episodes" in html
    assert html.count("after: all 2 episodes") == 1, "an evaluation of a run that is given too is shown once"


def test_an_evaluation_that_is_not_finished_says_so(tmp_path: Path, corpus: PreparedCorpus) -> None:
    folder = make_evaluation(tmp_path / "cut", corpus, right=True)
    (folder / "summary.json").unlink()
    html = Page().render(open_folders([folder]))
    assert "the evaluation is not finished" in html and "all 2 episodes" in html


@pytest.mark.parametrize(
    ("options", "sentence"),
    [("--groups 0", "--groups 0: a page holds"), ("--port 65536 --watch", "--port 65536: ports are"),
     ("--port -1 --watch", "--port -1: ports are"), ("--watch --out x.html", "give one of them"),
     ("--out {tmp}", "is a folder: name a file"), ("--out {tmp}/file/x.html", "cannot be written"),
     ("--out {tmp}/{long}", "cannot be written")],
)  # fmt: skip
def test_what_the_program_cannot_do_gets_one_sentence(
    run: Path, tmp_path: Path, options: str, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    assert main([str(run), "--groups", "1", *options.format(tmp=tmp_path, long="x" * 300).split()]) == 2
    said = capsys.readouterr().err
    assert sentence in said and said.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["file"], "nothing is left behind"


def test_queries_have_no_more_than_their_time(run: Path, corpus: PreparedCorpus) -> None:
    databases = Databases(corpus.directory)
    wanted = [Wanted("shop", TABLES, ("SELECT count(*) FROM customers",))]
    (late,) = databases.results(wanted, time.monotonic() - 1)
    assert "the time that a report spends on queries was over" in late.missing and not late.by_sql
    (later,) = databases.results(wanted, time.monotonic() + 60)
    assert not later.missing and later.by_sql["SELECT count(*) FROM customers"]["rows"] == [[2]]


@pytest.mark.full
def test_the_program_writes_the_page_and_names_it(run: Path, tmp_path: Path) -> None:
    program = [sys.executable, "-m", "sqale_grpo.report", str(run), "--out", str(tmp_path / "r.html"), "--groups", "3"]
    done = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, check=True)
    assert str(tmp_path / "r.html") in done.stdout
    html = (tmp_path / "r.html").read_text()
    assert "alpha: 12 of 48 episodes, as 3 of 12 whole groups" in html
    wrong = subprocess.run(program[:3] + [str(tmp_path)], cwd=ROOT, capture_output=True, text=True)
    assert wrong.returncode == 2 and wrong.stderr.startswith("error: ") and wrong.stderr.count("\n") == 1
