"""The identity of a figure: what it holds, which evaluations are one measurement, what a benchmark lacks."""

import csv
import json
from pathlib import Path

import pytest
from rich.console import Console

from sqale_grpo.corpus import prepare
from sqale_grpo.evaluate import tables
from sqale_grpo.evaluate.identity import different_keys, digest, missing, read_identity
from sqale_grpo.evaluate.runner import run_evaluation
from sqale_grpo.settings.asked import choose_questions
from sqale_grpo.settings.check import ConfigError
from sqale_grpo.settings.corpora import split_command, split_folder
from sqale_grpo.settings.evaluation import EvaluationConfig, load_evaluation
from sqale_grpo.settings.sections import CorpusConfig, EnvConfig
from tests.conftest import ROOT
from tests.helpers.corpora import database, json_lines
from tests.helpers.folders import write_evaluation
from tests.helpers.rows import row

COUNT = "SELECT count(*) FROM t"


def bird(folder: Path, databases: tuple[str, ...] = ("shop",)) -> Path:
    """BIRD's dev set with two questions a database, each with evidence."""
    records = []
    for name in databases:
        database(folder / "dev_databases" / name / f"{name}.sqlite", "CREATE TABLE t (a); INSERT INTO t VALUES (1)")
        records += [
            {"db_id": name, "question": "How many?", "evidence": "rows of t", "SQL": COUNT, "difficulty": "simple"},
            {"db_id": name, "question": "Most?", "evidence": "max", "SQL": "SELECT max(a) FROM t", "difficulty": ""},
        ]
    records = [{"question_id": number, **record} for number, record in enumerate(records)]
    (folder / "dev.json").write_text(json.dumps(records))
    return folder


def evaluation(source: Path, *more: str) -> EvaluationConfig:
    places = [f"corpus.source={source}", f"corpus.prepared={source.parent / 'prepared'}"]
    return load_evaluation([ROOT / "configs" / "eval" / "bird.yaml"], [*places, "backend=oracle", "model=m", *more])


def played(config: EvaluationConfig, folder: Path) -> Path:
    return run_evaluation(config, folder, Console(quiet=True))


def test_with_and_without_evidence_are_no_one_figure(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    source, output = bird(tmp_path / "bird"), tmp_path / "evaluations"
    played(evaluation(source, "group=mine"), output / "with")
    played(evaluation(source, "group=mine", "backend=empty", "corpus.evidence=false"), output / "without")
    found = tables.read_evaluations([output])
    said = r"with and without would be one figure of mine on bird \(full\).*corpus.evidence \(true, false\). Give one"
    with pytest.raises(ConfigError, match=said):
        tables.all_tables(found)
    played(evaluation(source, "group=other", "backend=empty", "corpus.evidence=false"), output / "without")
    by_name = {table.name: table for table in tables.all_tables(tables.read_evaluations([output]))}
    assert [cells[1][:5] for cells in by_name["benchmarks"].rows] == ["100.0", "0.0 ["]
    first, second = (figure.identity for figure in by_name["benchmarks"].figures if figure.metric == "equivalent")
    assert first != second and f"mine on BIRD dev, full schema: {first}" in by_name["benchmarks"].markdown()
    said = "not measured alike: corpus.evidence (true, false)"
    assert said in by_name["differences"].markdown()
    assert tables.main(["--compare", str(output / "with"), str(output / "without")]) == 0
    assert said in capsys.readouterr().out
    assert first in by_name["runs"].csv()


def test_the_digest_is_one_for_every_model_and_stands_beside_every_figure(tmp_path: Path):
    source, output = bird(tmp_path / "bird"), tmp_path / "evaluations"
    for name, backend in (("a", "oracle"), ("b", "empty")):
        played(evaluation(source, f"backend={backend}", "env.workers=2", f"batch={len(name)}"), output / name)
    found = [read_identity(output / name) for name in "ab"]
    assert found[0] == found[1] and found[0]["left_out"] == {"read": 2, "kept": 2}
    said = digest(found[0])
    assert json.loads((output / "a" / "summary.json").read_text())["identity"] == said
    for table in tables.all_tables(tables.read_evaluations([output])):
        assert said in table.markdown()
        lines = list(csv.DictReader(table.csv().splitlines()))
        assert not table.figures or {line["identity"] for line in lines} == {said}
    changes = ["seed=7", "env.tool_turns=5", "corpus.evidence=false", "sampling.temperature=1", "questions=1"]
    for number, change in enumerate(changes):
        other = read_identity(played(evaluation(source, change), output / f"c{number}"))
        assert different_keys(found[0], other) or change.startswith("seed"), change
        assert digest(other) != said, change


def test_seeds_may_differ_in_their_draw_and_in_nothing_else():
    one = {"harness": 1, "seed": 1, "question_ids": "a", "data": "a", "corpus.evidence": True}
    assert different_keys(one, one) == []
    assert different_keys(one, {**one, "seed": 2, "question_ids": "b", "data": "b"}) == []
    assert different_keys(one, {**one, "question_ids": "b"}) == ["question_ids"]
    assert different_keys(one, {**one, "seed": 2, "sqlite": "3.51"}) == ["sqlite"]
    # An evaluation of an earlier version is known by its configuration alone.
    assert different_keys(one, {"corpus.evidence": False}) == ["corpus.evidence"]


def test_a_broken_database_is_marked_in_every_table(tmp_path: Path):
    source = bird(tmp_path / "bird", ("shop", "card"))
    broken = source / "dev_databases" / "card" / "card.sqlite"
    broken.write_bytes(broken.read_bytes()[:4096])
    folder = played(evaluation(source), tmp_path / "e")
    summary = json.loads((folder / "summary.json").read_text())
    assert (summary["n"], summary["missing_share"]) == (2, 0.5)
    assert summary["left_out"]["read"] == 4 and sum(summary["left_out"].values()) == 4 + 2 + 2
    found = tables.all_tables(tables.read_evaluations([folder]))
    assert "2 of 4: 2 " in found[0].markdown()
    for table in found:
        assert "§" in table.markdown(), table.name
    assert found[1].rows[0][1].endswith("]§")


def test_what_has_no_answer_in_its_benchmark_is_not_missing():
    left_out = {"read": 300, "kept": 199, "impossible question": 99, "duplicate question_id": 1, "gold times out": 1}
    assert missing(left_out) == (1 / 200, "1 of 200: 1 gold times out")
    assert missing({"read": 5, "kept": 5}) == (0.0, "") == missing({})


def test_evaluations_of_an_earlier_version_are_told_apart_by_their_configuration(tmp_path: Path):
    for name, evidence in (("a", True), ("b", False)):
        corpus = {"name": "bird", "evidence": evidence}
        write_evaluation(tmp_path / name, [row("q", "equivalent")], model="m", benchmark="bird", corpus=corpus)
    with pytest.raises(ConfigError, match=r"corpus.evidence \(true, false\)"):
        tables.all_tables(tables.read_evaluations([tmp_path]))


def test_one_gold_that_fails_changes_one_question(tmp_path: Path):
    """Machine B cannot run one of A's golds; everything else stays as it was."""
    chosen = []
    for machine, bad in (("a", COUNT), ("b", "SELECT no_such_function() FROM t")):
        source = tmp_path / machine
        database(source / "d.sqlite", "CREATE TABLE t (a); INSERT INTO t VALUES (1)")
        golds = [bad if number == 20 else COUNT for number in range(200)]
        questions = [
            {"question_id": f"q{number}", "db_id": "d", "question": f"How many? ({number})", "sql": sql}
            for number, sql in enumerate(golds)
        ]
        json_lines(source / "questions_test.jsonl", questions)
        corpus = prepare("jsonl", source, tmp_path / f"{machine}_out", split="test", workers=1, progress=False)
        names = corpus.column("question_id")
        draws = [{names[index] for index in choose_questions(corpus, 60, seed)} for seed in range(20)]
        assert all(len(draw) == 60 for draw in draws) and draws[0] != draws[1]
        chosen.append(draws)
    lost = [a - b for a, b in zip(*chosen, strict=True)]
    assert {"q20"} in lost and all(names in (set(), {"q20"}) for names in lost)


def test_other_limits_and_an_edited_source_are_another_folder_and_no_dead_end(tmp_path: Path):
    source = bird(tmp_path / "bird")
    first = played(evaluation(source, "env.max_rows=10000"), tmp_path / "first")
    second = played(evaluation(source, "env.max_rows=20000"), tmp_path / "second")
    records = json.loads((source / "dev.json").read_text())
    (source / "dev.json").write_text(json.dumps([*records, {**records[0], "question_id": 9, "question": "Once more?"}]))
    third = played(evaluation(source, "env.max_rows=20000"), tmp_path / "third")
    assert [json.loads((each / "summary.json").read_text())["n"] for each in (first, second, third)] == [2, 2, 3]
    assert len(list((tmp_path / "prepared").glob("bird-dev-*"))) == 3
    assert different_keys(*(read_identity(each) for each in (first, second))) == ["env.max_rows"]


def test_a_folder_that_is_prepared_by_hand_is_named_after_its_limits():
    corpus, more = CorpusConfig(name="bird"), EnvConfig(max_rows=20_000, query_steps=9_000)
    assert (
        split_folder(corpus, "dev", 30.0).name == split_folder(corpus, "dev", 30.0, env=EnvConfig()).name == "bird-dev"
    )
    folder = split_folder(corpus, "dev", 30.0, 1, more)
    assert folder.name == "bird-dev-20000-rows-9000-steps-1-copies"
    assert f"--max-rows 20000 --steps 9000 --counter-databases 1 --out {folder}" in split_command(
        corpus, "dev", 30.0, 1, more
    )


def test_an_evaluation_goes_on_with_the_same_data_only(tmp_path: Path):
    source = bird(tmp_path / "bird")
    folder = played(evaluation(source), tmp_path / "e")
    (folder / "summary.json").unlink()
    records = json.loads((source / "dev.json").read_text())
    (source / "dev.json").write_text(json.dumps([{**records[0], "question": "How many rows?"}, records[1]]))
    with pytest.raises(ConfigError, match=r"was begun as another measurement: data \(.*set another name"):
        played(evaluation(source), folder)


def test_ehrsql_has_its_own_verdict_and_its_scores_with_abstention(tmp_path: Path):
    source = tmp_path / "ehrsql"
    script = "CREATE TABLE patients (gender TEXT, dob TEXT); INSERT INTO patients VALUES ('f', '2050-01-01 00:00:00')"
    database(source / "mimic_iii" / "mimic_iii.sqlite", script)
    golds = ["select count(*) from patients where gender = 'f'", "select gender from patients where dob < current_time"]
    golds.append("select gender from patients where gender = 'm'")
    records = [
        {
            "id": f"x{number}",
            "db_id": "mimic_iii",
            "question": f"Who? ({number})",
            "query": gold,
            "is_impossible": False,
        }
        for number, gold in enumerate(golds)
    ]
    records.append({"id": "y", "db_id": "mimic_iii", "question": "Why?", "query": "null", "is_impossible": True})
    (source / "mimic_iii" / "test.json").write_text(json.dumps(records))
    places = [f"corpus.source={source}", f"corpus.prepared={tmp_path / 'prepared'}", "model=m"]
    found = {}
    for backend in ("oracle", "empty", "no_rows"):
        config = load_evaluation([ROOT / "configs" / "eval" / "ehrsql.yaml"], [*places, f"backend={backend}"])
        found[backend] = json.loads((played(config, tmp_path / backend) / "summary.json").read_text())
    assert (found["oracle"]["equivalent"], found["oracle"]["official"], found["oracle"]["official_n"]) == (1.0, 1.0, 3)
    assert found["oracle"]["abstention"]["f1_exec"] == found["oracle"]["abstention"]["recall_ans"] == 1.0
    # Without rows the third is right, and a blank answer is a query without rows there; here it is none.
    assert (found["empty"]["equivalent"], found["empty"]["official"]) == (0.0, 1 / 3)
    assert (found["no_rows"]["equivalent"], found["no_rows"]["official"]) == (1 / 3, 1 / 3)
    assert found["empty"]["abstention"]["recall_exec"] == pytest.approx(1 / 3)
    assert found["oracle"]["left_out"]["impossible question"] == 1 and found["oracle"]["missing_share"] == 0
