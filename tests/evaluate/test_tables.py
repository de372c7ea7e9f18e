"""Tables from folders of evaluations: their figures, what stands beside them, what is left out and said to be."""

import csv
import io

import pytest
import yaml
from rich.console import Console

from sqale_grpo.evaluate import published, tables
from sqale_grpo.evaluate.evaluations import find_evaluations, read_evaluation, sizes
from sqale_grpo.evaluate.plots import draw_plots
from sqale_grpo.rollout.rates import wilson
from sqale_grpo.settings.check import ConfigError
from sqale_grpo.settings.load import load_config
from tests.helpers.folders import write_evaluation
from tests.helpers.programs import program
from tests.helpers.rows import row

evaluate = program("evaluate")


def answers(right: int, n: int = 20, **changes):
    """``n`` questions, the first ``right`` of them right."""
    return [row(f"q{i:02}", "equivalent" if i < right else "executable", recall=i < 15, **changes) for i in range(n)]


@pytest.fixture
def runs(tmp_path):
    """A base policy, and one of three seeds whose third is not finished, at two sizes."""
    for size, base, seeds in (("gold", 10, (14, 18)), ("distractors:32", 6, (10, 14))):
        mark = size.replace(":", "-")
        write_evaluation(tmp_path / f"base-{mark}", answers(base), model="base", schema=size)
        for number, right in enumerate(seeds):
            model = f"runs/large-{number}/checkpoint-25"
            write_evaluation(tmp_path / f"l{number}-{mark}", answers(right), model=model, group="large", schema=size)
        model = "runs/large-2/checkpoint-25"
        rows = answers(1, n=3)
        write_evaluation(tmp_path / f"l2-{mark}", rows, finished=False, model=model, group="large", schema=size)
    return tmp_path


def test_schema_sizes_have_means_over_seeds_and_recall(runs):
    table = tables.schema_size_table(tables.read_evaluations([runs]), "demo")
    assert table.head == ["Tables in the database", "base", "large (3 seeds)"]
    assert [cells[0] for cells in table.rows] == ["Gold tables only", "+ 32 distractor tables"]
    base, large = table.rows[0][1:]
    assert base == "50.0 (75.0) [29.9, 70.1]"
    assert large.startswith("80.0 (75.0) [") and large.endswith("100.0]†")
    first = next(each for each in table.figures if each.policy == "large" and each.metric == "equivalent")
    assert (first.value, first.seeds, first.n, first.missing) == (0.8, 2, 20, ("unfinished",))
    assert first.low < 0.7 and first.high > 0.9  # wider than either seed's own spread of questions alone


def test_names_are_shown_and_not_obeyed_on_a_terminal(tmp_path):
    write_evaluation(tmp_path / "a", answers(5), model="\x1b[2J\x1b[31mHACK", group="\x9b[bold]", schema="gold")
    console = Console(file=io.StringIO(), width=200)
    for table in tables.all_tables(tables.read_evaluations([tmp_path])):
        console.print(table.rich())
    shown = console.file.getvalue()
    assert "\x1b" not in shown and "\x9b" not in shown and "\\x9b[bold]" in shown


def test_what_is_not_finished_is_shown_and_in_no_mean(runs):
    evaluations = tables.read_evaluations([runs])
    states = {cells[0]: cells[4] for cells in tables.runs_table(evaluations).rows}
    assert states["l2-gold"] == "unfinished" and states["l1-gold"] == "finished"
    lost = tables.failed_run("shallow", "runs/shallow-1", "demo", "gold")
    table = tables.schema_size_table([*evaluations, lost], "demo")
    assert table.rows[0][-1] == "failed" and table.rows[1][-1] == "–"


def test_an_evaluation_with_failed_questions_is_not_finished(tmp_path):
    write_evaluation(tmp_path / "a", answers(5), failed=2)
    (evaluation,) = tables.read_evaluations([tmp_path])
    assert (evaluation.failed, evaluation.state) == (2, "unfinished")
    assert tables.benchmark_table([evaluation]).rows[0][1] == "unfinished"
    assert tables.runs_table([evaluation]).rows[0][6] == "2"


def test_differences_are_paired_and_refuse_other_questions(runs, tmp_path, capsys):
    evaluations = tables.read_evaluations([runs])
    table = tables.differences_table(evaluations)
    assert table.rows[0][:3] == ["large - base", "demo", "Gold tables only"]
    assert table.rows[0][3].startswith("30.0 [")
    write_evaluation(tmp_path / "other", answers(5, n=19), model="other", schema="gold")
    found = tables.differences_table(tables.read_evaluations([runs / "base-gold", tmp_path / "other"]))
    assert found.rows[0][3] == "–"
    assert "different questions (1 of 20 only in the first, 0 of 19 only in the second, e.g. q19)" in found.notes[0]
    assert evaluate(["tables", "--compare", str(runs / "base-gold"), str(tmp_path / "other")]) == 2
    assert "different questions" in capsys.readouterr().err
    assert evaluate(["tables", "--compare", str(runs / "base-gold"), str(runs / "l0-gold")]) == 0
    assert "large - base: 20.0 [" in capsys.readouterr().out


def test_two_policies_of_one_seed_have_the_paired_interval(tmp_path):
    before = tables.read_evaluations([write_evaluation(tmp_path / "a", answers(4), model="a")])
    after = tables.read_evaluations([write_evaluation(tmp_path / "b", answers(8), model="b")])
    found = tables.difference(before, after)
    assert found.value == pytest.approx(0.2)
    # Bonett and Price: 4 of 20 discordant, all one way.
    assert found.high - found.low == pytest.approx(2 * 1.959964 * ((6 / 22 - (4 / 22) ** 2) / 22) ** 0.5)


def test_published_figures_stand_beside_the_same_model(tmp_path):
    """The card's recipe on its data is the card's policy; any other base or corpus is not."""
    run = tmp_path / "runs" / "sqale"
    (run / "checkpoint-1800").mkdir(parents=True)
    (run / "config.yaml").write_text(
        yaml.safe_dump({"model": {"path": "Qwen/Qwen3.5-2B"}, "corpus": {"name": "sqale"}})
    )
    changes = {"official": True, "unstated": 1, "difficulty": "moderate"}
    model = str(run / "checkpoint-1800")
    write_evaluation(tmp_path / "e" / "trained", answers(12, **changes), model=model, benchmark="sqale")
    write_evaluation(tmp_path / "e" / "untrained", answers(7, **changes), model="Qwen/Qwen3.5-2B", benchmark="sqale")
    write_evaluation(tmp_path / "e" / "gold", answers(15, **changes), model=model, benchmark="sqale", schema="gold")
    found = tables.all_tables(tables.read_evaluations([tmp_path / "e"]))
    by_name = {table.name: table for table in found}
    assert ["… published: MSQaLe", "66.3", "–"] in by_name["benchmarks"].rows
    assert ["… published: Qwen3.5-2B (untrained)", "38.7", "–"] in by_name["benchmarks"].rows
    assert by_name["benchmarks"].head[1:] == ["SQaLe test", "SQaLe test, its own verdict"]
    sizes_of_card = by_name["schema_size_sqale"]
    assert "MSQaLe, published" in sizes_of_card.head
    assert sizes_of_card.rows[0][2] == "72.7 (95.3)" and sizes_of_card.rows[1][2] == "66.3 (89.7)"
    assert ["… published: MSQaLe", "", "88", "–", "61", "55", "–"] in by_name["literals_sqale"].rows
    known = next(cells for cells in by_name["compute_sqale_moderate"].rows if "published" in cells[0])
    assert known[3] == "52.0" and known[-1] == "224"
    compute = by_name["compute_sqale_moderate"]
    assert compute.rows[0][-1].startswith("5.6 ")  # 2 x 2e9 x 1,400 tokens
    models = [row for row in compute.rows if row[0].startswith("published: ")]
    assert len(models) == 25 and models[0][0] == "published: MBIRD" and models[-1][0] == "published: Llama-3.3-70B"
    assert models[-1][1:] == ["Full schema", "70,000,000,000", "49.0", "–", "–", "–", "3,154"]
    assert not any("published: " in row[0] for row in by_name["compute_sqale"].rows), "these are of moderate questions"


def test_birds_published_figures_stand_under_its_own_verdict(tmp_path):
    """Cards of the authors' earlier runs give BIRD both ways, and 52.3 is their official figure."""
    name, rows = "trl-lab/qwen3.5-2b-grpo-sqale", answers(12, official=True)
    write_evaluation(tmp_path / "a", rows, model=name, benchmark="bird")
    table = tables.benchmark_table(tables.read_evaluations([tmp_path]))
    assert table.head[1:] == ["BIRD dev", "BIRD dev, its own verdict"]
    assert table.rows[1] == ["… published: MSQaLe", "–", "52.3"]
    assert [each.published for each in table.figures] == [None, 52.3]


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("trl-lab/qwen3.5-2b-grpo-sqale", "MSQaLe"),
        ("Qwen/Qwen3.6-27B", "Qwen3.6-27B (untrained)"),
        ("/models/Qwen3.5-2B/", "Qwen3.5-2B (untrained)"),
        ("demo-policy", None),
        ("", None),
    ],
)
def test_names_of_the_card(model, name):
    assert published.published_name(model) == name


def test_a_demo_run_is_not_the_papers(tmp_path):
    from sqale_grpo.settings.load import save_config

    save_config(load_config(["configs/demo.yaml"]), tmp_path / "config.yaml")
    assert published.published_name(str(tmp_path)) is None


def test_the_cards_differences_follow_from_its_tables():
    gain = {
        name: known["sqale"] - published.ACCURACY[published.UNTRAINED]["sqale"]
        for name, known in published.ACCURACY.items()
    }
    assert [round(gain[name], 1) for name in ("MSQaLe", "MBIRD", "MSynSQL")] == [27.6, 15.3, 12.0]
    for name, known in published.SCHEMA_SIZE.items():
        assert known["full"].accuracy == published.ACCURACY[name]["sqale"]


def test_several_candidates_have_a_table(tmp_path):
    rows = [
        row(f"q{i}", "equivalent" if i < 4 and j == 0 else "executable", candidate=j, result_class=j)
        for i in range(8)
        for j in range(2)
    ]
    write_evaluation(tmp_path / "a", rows)
    table = tables.candidates_table(tables.read_evaluations([tmp_path]), "demo")
    assert table.head[2:] == ["pass@1", "pass@2", "majority@2"]
    low, high = wilson(4, 8)
    assert table.rows[0][3] == f"50.0 [{100 * low:.1f}, {100 * high:.1f}]"
    assert table.rows[0][2].startswith("25.0 [") and table.rows[0][4].startswith("25.0 [")


def test_the_command_prints_and_writes_everything(runs, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    out = tmp_path / "out"
    assert evaluate(["tables", str(runs), "--out", str(out)]) == 0
    shown = capsys.readouterr().out
    assert "50.0 (75.0) [29.9, 70.1]" in shown
    page = (out / "tables.md").read_text()
    assert "| Gold tables only | 50.0 (75.0) [29.9, 70.1] |" in page
    records = list(csv.DictReader(io.StringIO((out / "schema_size_demo.csv").read_text())))
    assert {"policy", "schema", "metric", "value", "low", "high", "seeds", "n"} <= set(records[0])
    assert float(records[0]["value"]) == 0.5
    plots = sorted(path.name for path in out.glob("*.svg"))
    assert plots == ["accuracy_by_size_demo.svg", "compute_demo.svg", "recall_by_size_demo.svg"]
    assert all(f"({name})" in page for name in plots)
    assert not list(out.glob("*.partial"))


def test_plots_of_the_same_evaluations_are_the_same_bytes(runs, tmp_path):
    evaluations = tables.read_evaluations([runs])
    first, second = (draw_plots(evaluations, tmp_path / name) for name in ("one", "two"))
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]
    assert b"large (3 seeds)" in first[0].read_bytes()


def test_names_are_text_and_no_markup(tmp_path, capsys):
    write_evaluation(tmp_path / "a", answers(5), group="_[red]x[/red]|y$^{$")
    assert evaluate(["tables", str(tmp_path), "--out", str(tmp_path / "out")]) == 0
    assert "_[red]x[/red]|y$^{$" in capsys.readouterr().out
    assert "_[red]x[/red]\\|y$^{$" in (tmp_path / "out" / "tables.md").read_text()
    assert "_[red]x[/red]|y$^{$" in (tmp_path / "out" / "compute_demo.svg").read_text()


def test_bad_input_is_one_sentence(tmp_path, capsys):
    assert (
        evaluate(
            [
                "tables",
            ]
        )
        == 2
    )
    assert "no evaluation given" in capsys.readouterr().err
    assert evaluate(["tables", str(tmp_path / "nothing")]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    folder = write_evaluation(tmp_path / "a", answers(5))
    (folder / "summary.json").write_text("{")
    with pytest.raises(ConfigError, match="summary.json is broken"):
        read_evaluation(folder)


def test_evaluations_of_a_training_run_are_found(tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    (run / "config.yaml").write_text("name: run\n")
    mine = write_evaluation(run / "evaluations" / "after", answers(5))
    assert find_evaluations([run]) == [mine] == find_evaluations([mine])
    assert read_evaluation(mine).policy == "model"


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("runs/demo-seed1/checkpoint-25", "demo-seed1"),
        ("Qwen/Qwen3.5-2B", "Qwen3.5-2B"),
        ("lib/sqale_grpo/demo/policy", "demo"),
    ],
)
def test_a_policy_without_a_group_has_its_models_name(tmp_path, model, name):
    write_evaluation(tmp_path / "a", answers(5), model=model)
    assert read_evaluation(tmp_path / "a").policy == name


def test_sizes_are_in_the_order_of_the_schema(runs):
    evaluations = [
        tables.failed_run("p", "m", "b", size)
        for size in ("sampled", "full", "distractors:128", "gold", "distractors:32")
    ]
    assert sizes(evaluations) == ["gold", "distractors:32", "distractors:128", "full", "sampled"]


def test_a_benchmark_that_was_not_played_at_the_tables_size_has_no_empty_column(tmp_path):
    write_evaluation(tmp_path / "a", answers(5), benchmark="bird", schema="full")
    write_evaluation(tmp_path / "b", answers(5), benchmark="demo", schema="sampled")
    assert tables.benchmark_table(tables.read_evaluations([tmp_path])).head == ["Policy", "BIRD dev"]


def test_an_evaluation_of_an_earlier_version_names_the_new_key(tmp_path):
    folder = write_evaluation(tmp_path / "a", answers(5))
    config = folder / "config.yaml"
    config.write_text(config.read_text().replace("schema:", "tables:"))
    with pytest.raises(ConfigError, match=r"config\.yaml: tables is now schema"):
        tables.read_evaluations([tmp_path])


def test_robust_accuracy_stands_beside_accuracy_in_every_table(tmp_path):
    rows = {
        name: [each | {"robust": each["tier"] == "equivalent" and i % 2 == 0} for i, each in enumerate(answers(right))]
        for name, right in (("base", 10), ("large", 16))
    }
    for name, answered in rows.items():
        for size in ("gold", "full"):
            write_evaluation(tmp_path / f"{name}-{size}", answered, model=name, schema=size)
    found = {table.name: table for table in tables.all_tables(tables.read_evaluations([tmp_path]))}
    low, high = (100 * end for end in wilson(5, 20))
    robust = f"25.0 [{low:.1f}, {high:.1f}]"
    assert found["benchmarks"].head[2].endswith(", robust") and found["benchmarks"].rows[0][2] == robust
    for name in ("schema_size_demo", "difficulty_demo", "compute_demo"):
        assert f"; robust {robust}" in " ".join(found[name].rows[0]), name
        assert {"equivalent", "robust"} <= {each.metric for each in found[name].figures}, name
    label, *_, points, questions = found["differences"].rows[1]
    assert (label, questions) == ("large - base, robust", "20") and points.startswith("15.0 [")
