"""A folder that is edited: prepared anew without a word, and only what changed is run again."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from sqale_grpo.corpus import PreparedCorpus
from sqale_grpo.corpus.earlier import take_earlier
from sqale_grpo.corpus.question import CorpusError
from sqale_grpo.settings.corpora import open_split, split_folder
from sqale_grpo.settings.sections import CorpusConfig, EnvConfig
from tests.corpus.own.conftest import lines
from tests.helpers.corpora import json_lines, own_questions

SQLS = ["SELECT name FROM City", "SELECT count(*) FROM shop", "SELECT nothing FROM shop", "SELECT name FROM big_city"]


@pytest.fixture
def own(tmp_path: Path) -> Path:
    return own_questions(tmp_path / "own", SQLS)


def opened(own: Path, folder: Path, copies: int = 0) -> PreparedCorpus:
    corpus = CorpusConfig(name="jsonl", source=str(own), prepared=str(folder / "prepared"))
    return open_split(corpus, "train", 30.0, EnvConfig(), copies)


def taken(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many verdicts each preparation takes from an earlier one."""
    counts: list[int] = []

    def counted(*arguments: object) -> int:
        counts.append(take_earlier(*arguments))  # type: ignore[arg-type]
        return counts[-1]

    monkeypatch.setattr("sqale_grpo.corpus.preparation.take_earlier", counted)
    return counts


def test_only_what_changed_is_run_again(own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = taken(monkeypatch)
    first = opened(own, tmp_path)
    records = lines(own / "questions.jsonl")
    records.append(dict(records[0], question_id="new", question="How big is Oslo?", sql="SELECT people FROM City"))
    json_lines(own / "questions.jsonl", records)
    second = opened(own, tmp_path)
    assert counts == [0, 4]
    assert first.directory != second.directory and len(second) == len(first) + 1 == 4
    assert second.column("gold_tables")[-1] == ["City"]
    assert second.column("gold_tables")[2] == ["City"]  # of the view
    assert second.summary["dropped"] == {"gold does not execute": 1}
    databases = [corpus.database("shop") for corpus in (first, second)]
    assert databases[0].samefile(databases[1])
    assert opened(own, tmp_path).directory == second.directory and counts == [0, 4]


def test_counter_databases_are_chosen_again_for_what_changed_alone(
    own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = lines(own / "questions.jsonl")
    records.append(dict(records[0], question_id="where", sql="SELECT name FROM City WHERE people > 100000"))
    json_lines(own / "questions.jsonl", records)
    counts = taken(monkeypatch)
    first = opened(own, tmp_path, copies=2)
    assert any(first.column("copies")), "there is a choice to take over"
    records.append(dict(records[0], question_id="new", question="How big is Oslo?", sql="SELECT people FROM City"))
    json_lines(own / "questions.jsonl", records)
    edited, anew = opened(own, tmp_path, copies=2), opened(own, tmp_path / "anew", copies=2)
    assert counts == [0, 5, 0]
    for name in ("question_id", "gold_tables", "copies", "luck"):
        assert edited.column(name) == anew.column(name), name
    assert edited.summary == anew.summary
    (edited.directory / "choices.jsonl").unlink()  # as an earlier version prepared it: everything is judged again
    records.append(dict(records[0], question_id="newer"))
    json_lines(own / "questions.jsonl", records)
    opened(own, tmp_path, copies=2)
    assert counts[-1] == 0


def test_a_row_that_an_application_adds_is_met(own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = taken(monkeypatch)
    first = opened(own, tmp_path)
    with closing(sqlite3.connect(own / "databases" / "shop" / "shop.sqlite")) as connection:
        connection.execute("INSERT INTO City VALUES (9, 'Turin', 2000)")
        connection.commit()
    second = opened(own, tmp_path)
    assert counts == [0, 0]
    assert [corpus.column("n_rows")[0] for corpus in (first, second)] == [4, 5]
    assert not first.database("shop").samefile(second.database("shop"))


def test_one_folder_by_two_names_is_prepared_once(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(own.parent)
    names = (str(own), "own", "own/", "./own")
    assert len({split_folder(CorpusConfig(name="jsonl", source=name), "train", 30.0) for name in names}) == 1


def test_a_folder_without_its_loader_is_not_touched(
    own: Path, tmp_path: Path, corpus: Callable[..., int], capsys
) -> None:
    before = sorted(own.rglob("*"))
    with pytest.raises(CorpusError, match=r"is a corpus of your own.*add configs/corpus/jsonl.yaml"):
        split_folder(CorpusConfig(name="demo", source=str(own)), "train", 30.0)
    assert corpus("prepare", "--corpus", "demo", "--source", own, "--out", tmp_path / "out") == 2
    assert "add configs/corpus/jsonl.yaml" in capsys.readouterr().err
    (tmp_path / "empty").mkdir()
    with pytest.raises(CorpusError, match="would write them into"):
        split_folder(CorpusConfig(name="demo", source=str(tmp_path / "empty")), "train", 30.0)
    with pytest.raises(CorpusError, match="there is no folder nowhere"):
        split_folder(CorpusConfig(name="demo", source="nowhere"), "train", 30.0)
    assert sorted(own.rglob("*")) == before and not list((tmp_path / "empty").iterdir())
