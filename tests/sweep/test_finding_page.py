"""The finding's page: its figures, runs that failed, what is written by hand, and the same bytes twice."""

import json
import re
import shutil
from pathlib import Path

import pytest

from sqale_grpo.settings.check import ConfigError
from sqale_grpo.settings.keys import Config, TrainConfig
from sqale_grpo.sweep.file import SweepRun
from sqale_grpo.sweep.finding_page import (
    BEGIN,
    END,
    SIZES,
    FindingResults,
    ablation_table,
    pairs_table,
    read_results,
    run_lines,
    size_table,
    write_page,
)
from sqale_grpo.sweep.state import FAILURE
from tests.helpers.folders import write_evaluation
from tests.helpers.rows import row

N = 20
# policy -> right answers by seed, the same at every size
RIGHT = {"large": (14, 18), "small": (9, 11)}


def answers(right: int) -> list[dict]:
    return [row(f"q{i:02}", "equivalent" if i < right else "executable", recall=i < right + 1) for i in range(N)]


def evaluated(folder: Path, policy: str, right: int) -> None:
    for size in SIZES:
        place = folder / "evaluations" / size.replace(":", "-")
        write_evaluation(
            place, answers(right), model=str(folder / "checkpoint-2"), group=policy, schema=size, benchmark="demo_large"
        )


def make_run(output: Path, config: str, seed: int | None, right: int | None) -> SweepRun:
    """A run's folder; without right answers it failed."""
    name = Path(config).stem + (f"-seed{seed}" if seed else "")
    folder = output / name
    folder.mkdir(parents=True)
    if right is None:
        (folder / FAILURE).write_text("exit status 1: error: out of luck")
    else:
        (folder / "checkpoint-2").mkdir()
        (folder / "checkpoint-2" / "complete").touch()
        line = {"reward": 1.5, "equivalent_rate": 0.25, "invalid_rate": 0.0, "rounds": 4.0, "tool_calls": 5.0}
        (folder / "metrics.jsonl").write_text("".join(json.dumps({"update": n, **line}) + "\n" for n in (0, 1)))
        evaluated(folder, Path(config).stem.removeprefix("demo_"), right)
    parameters = {"config": config, **({"seed": seed} if seed else {})}
    settings = Config(name=name, output=str(output), seed=seed or 1, train=TrainConfig(updates=2))
    return SweepRun(parameters, ("python", "-m", "sqale_grpo.train", f"config={config}"), settings)


@pytest.fixture(scope="module")
def results(tmp_path_factory) -> FindingResults:
    """A base policy, two seeds of two corpora, a third seed of ``large`` that failed, and two ablations, one failed."""
    output = tmp_path_factory.mktemp("finding")
    evaluated(output / "base", "base", 5)
    runs = [
        make_run(output, f"configs/corpus/demo_{shape}.yaml", seed, right)
        for shape, seeds in RIGHT.items()
        for seed, right in enumerate(seeds, 1)
    ]
    runs.insert(2, make_run(output, "configs/corpus/demo_large.yaml", 3, None))
    runs.append(make_run(output, "configs/ablation/no_gate.yaml", None, 12))
    runs.append(make_run(output, "configs/ablation/no_anchor.yaml", None, None))
    return FindingResults(runs, output, "demo_large")


def test_figures_are_means_over_the_runs_that_finished(results):
    table = size_table(results)
    assert table.head[1:] == ["base", "large (3 seeds)", "small (2 seeds)"]
    base, large, small = table.rows[2][1:]
    assert base.startswith("25.0 (30.0) [") and small.startswith("50.0 (55.0) [")
    assert large.startswith("80.0 (85.0) [") and large.endswith("†"), "the failed seed is said, and in no mean"


def test_differences_pair_the_policies_on_the_same_questions(results):
    main, _ = read_results(results)
    found = {cells[0]: cells[1:] for cells in pairs_table(main, "equivalent", "Differences").rows}
    assert list(found) == ["large - small", "large - base", "small - base"]
    assert all(cell.startswith("30.0 [") for cell in found["large - small"])
    assert all(cell.startswith("55.0 [") for cell in found["large - base"])


def test_an_ablation_is_held_against_the_full_recipe_of_its_seed(results, tmp_path):
    page = tmp_path / "docs" / "finding.md"
    write_page(page, results)
    lines = [line for line in page.read_text().splitlines() if line.startswith(("| no gate", "| no anchor"))]
    assert re.fullmatch(r"\| no gate \| (-10\.0 \[[^]]*\] \| ){3}", lines[0] + " "), lines
    assert lines[1] == "| no anchor | failed | failed | failed |"


def test_an_ablation_of_another_seed_is_held_against_none(results, tmp_path):
    runs = [make_run(tmp_path, "configs/corpus/demo_large.yaml", seed, 14) for seed in (2, 3)]
    runs.append(make_run(tmp_path, "configs/ablation/no_gate.yaml", None, 12))  # of seed 1
    evaluated(tmp_path / "base", "base", 5)
    table = ablation_table(FindingResults(runs, tmp_path, "demo_large"))
    assert table.rows == [["no gate", "–", "–", "–"]] and "no run of large has its seed 1" in table.notes[0]


def test_what_an_earlier_policy_answered_is_no_figure_of_a_run_that_failed_since(tmp_path):
    runs = [make_run(tmp_path, "configs/corpus/demo_large.yaml", seed, right) for seed, right in ((1, 14), (2, 2))]
    evaluated(tmp_path / "base", "base", 5)
    shutil.rmtree(runs[1].folder / "checkpoint-2")
    (runs[1].folder / FAILURE).write_text("exit status 1: error: out of luck")
    results = FindingResults(runs, tmp_path, "demo_large")
    assert size_table(results).rows[2][2].startswith("70.0 (75.0) [")
    assert list(run_lines(results))[2]["evaluations"] == {}


def test_a_failed_run_is_shown_with_its_last_words(results, tmp_path):
    page = tmp_path / "finding.md"
    write_page(page, results)
    assert "| demo_large-seed3 | failed: exit status 1: error: out of luck | – | – | – | – |" in page.read_text()


def test_what_is_written_by_hand_stays(results, tmp_path):
    page = tmp_path / "finding.md"
    page.write_text(f"# Mine\n\nBefore.\n\n{BEGIN}\nfigures of last week\n{END}\n\n## After\n")
    write_page(page, results)
    text = page.read_text()
    assert text.startswith("# Mine\n\nBefore.\n") and text.endswith(f"{END}\n\n## After\n")
    assert "last week" not in text and "demo_large" in text


def test_a_page_without_a_place_for_the_results_is_not_touched(results, tmp_path):
    page = tmp_path / "finding.md"
    page.write_text("# Mine\n")
    with pytest.raises(ConfigError, match="no place for the results"):
        write_page(page, results)
    assert page.read_text() == "# Mine\n"


def test_the_same_runs_give_the_same_files(results, tmp_path):
    first, second = (write_page(tmp_path / name / "finding.md", results) for name in ("a", "b"))
    assert [path.name for path in first] == [path.name for path in second]
    assert len(first) == 4, "page, data, two plots"
    for one, other in zip(first, second, strict=True):
        assert one.read_bytes() == other.read_bytes()


def test_the_data_have_a_line_a_run(results):
    lines = list(run_lines(results))
    assert [line["name"] for line in lines][:2] == ["base", "demo_large-seed1"]
    assert lines[1]["evaluations"]["full"]["equivalent"] == 0.7 and lines[1]["training"]["reward"] == 1.5
    assert lines[3]["state"] == "failed" and lines[3]["evaluations"] == {}
    json.dumps(lines)


def test_a_sweep_that_chooses_no_corpus_is_refused(results):
    run = SweepRun({"seed": 1}, ("python", "-m", "sqale_grpo.train", "configs/demo.yaml"), Config(name="seed1"))
    with pytest.raises(ConfigError, match="seed1: the sweep must choose a corpus"):
        size_table(FindingResults([run], results.output, "demo_large"))
