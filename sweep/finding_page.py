"""The page of the finding: what the sweep's runs and their evaluations say, between two marks of a Markdown file.

What stands outside the marks is written by hand and stays. Beside the page: ``finding.jsonl`` with a line a run, and
two plots in ``images/``. The same runs give the same page, except for the date.
"""

import dataclasses
import datetime
import json
import os
import platform
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from sqale_grpo.env.files import write_whole
from sqale_grpo.evaluate.card_tables import literals_table, schema_size_table
from sqale_grpo.evaluate.evaluations import Evaluation, failed_run, policies, read_evaluation
from sqale_grpo.evaluate.figures import NOTHING
from sqale_grpo.evaluate.metrics import stable
from sqale_grpo.evaluate.other_tables import difference, difficulty_table
from sqale_grpo.evaluate.records import CONFIG
from sqale_grpo.evaluate.table_data import Table, select, size_name
from sqale_grpo.settings.check import ConfigError
from sqale_grpo.sweep.comparison import compare
from sqale_grpo.sweep.file import SweepRun
from sqale_grpo.sweep.state import standing

SIZES = ("gold", "distractors:32", "full")
BASE = "base"
FULL_RECIPE = "large"
BEGIN, END = "<!-- results: written by make finding -->", "<!-- end of results -->"
DIFFERENCES = {
    "equivalent": "Differences in accuracy, percentage points",
    "robust": "Differences in robust accuracy, percentage points",
    "table_recall": "Differences in table recall, percentage points",
}
PLOTS = {"equivalent": "accuracy.svg", "table_recall": "recall.svg"}  # after the page's own name
# What a run's line keeps of its evaluations' summaries.
KEPT = (
    "n",
    "equivalent",
    "executable",
    "parsable",
    "invalid",
    "robust",
    "table_recall",
    "literals_seen",
    "unstated_literals_seen",
    "rounds",
    "calls",
    "completion_tokens",
)


@dataclass(frozen=True)
class FindingResults:
    """Where the results lie: the sweep's runs, and the base policy's evaluations in ``output``/base.

    ``overrides``: what the start had on its command line; the page says it, since its figures depend on it.
    """

    runs: Sequence[SweepRun]
    output: Path
    benchmark: str
    overrides: Sequence[str] = ()


def write_page(page: Path, results: FindingResults) -> list[Path]:
    """Rebuild the results of ``page``, the JSON lines of its name and its plots; returns what was written."""
    before, after = around(page)
    page.parent.mkdir(parents=True, exist_ok=True)
    main, ablations = read_results(results)
    plots = draw(main, results.benchmark, page.parent / "images" / page.stem)
    text = "\n".join([before + BEGIN, "", *blocks(main, ablations, results, plots), END]) + after
    lines = page.with_suffix(".jsonl")
    write_whole(lines, "".join(json.dumps(line) + "\n" for line in run_lines(results)))
    write_whole(page, text)
    return [page, lines, *plots]


def around(page: Path) -> tuple[str, str]:
    """What stands before and after the results of a page; ConfigError where it has no place for them."""
    if not page.exists():
        return "# The finding\n\n", "\n"
    text = page.read_text(encoding="utf-8")
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ConfigError(f"{page} has no place for the results; it must hold {BEGIN} and, below, {END}")
    return before, after


def read_results(results: FindingResults) -> tuple[list[Evaluation], list[Evaluation]]:
    """The evaluations of the base policy and the corpora, and those of the ablations, each of one run a policy.

    A run that did not finish stands there as failed, at every size.
    """
    main = [_read(results.output / BASE, BASE, size, results) for size in SIZES]
    ablations: list[Evaluation] = []
    for run in results.runs:
        (ablations if is_ablation(run) else main).extend(_read_run(run, size, results) for size in SIZES)
    return main, ablations


def policy_of(run: SweepRun) -> str:
    """The policy of which a run is one seed: its corpus' shape, or the name of the ablation."""
    return chosen_file(run).stem.removeprefix("demo_")


def is_ablation(run: SweepRun) -> bool:
    """Whether the run leaves a part of the recipe out."""
    return chosen_file(run).parent.name == "ablation"


def chosen_file(run: SweepRun) -> Path:
    """The configuration file that the sweep chose for the run; ConfigError where it chose none."""
    words = [word for word in run.command if word.startswith("config=")]
    if not words:
        raise ConfigError(f"{run.name}: the sweep must choose a corpus or an ablation by the parameter config")
    return Path(words[-1].partition("=")[2])


def _read_run(run: SweepRun, size: str, results: FindingResults) -> Evaluation:
    """Evaluations in the folder of a run that is not finished are those of an earlier policy."""
    if standing(run).state != "finished":
        return failed_run(policy_of(run), run.name, results.benchmark, size)
    return _read(run.folder, policy_of(run), size, results)


def _read(folder: Path, policy: str, size: str, results: FindingResults) -> Evaluation:
    place = evaluation_folder(folder, size)
    if not (place / CONFIG).exists():
        return failed_run(policy, folder.name, results.benchmark, size)
    return read_evaluation(place)


def evaluation_folder(folder: Path, size: str) -> Path:
    """Where the evaluation of a run at one size of schema lies."""
    return folder / "evaluations" / size.replace(":", "-")


def blocks(
    main: Sequence[Evaluation], ablations: Sequence[Evaluation], results: FindingResults, plots: Sequence[Path]
) -> Iterator[str]:
    """The Markdown between the marks."""
    config = results.runs[0].config
    questions = max((len({row["question_id"] for row in stable(each.rows)}) for each in main), default=0)
    train = config.train
    yield (
        f"Written on {datetime.datetime.now(datetime.UTC).date()} from {len(results.runs)} runs of {train.updates} "
        f"updates of {train.questions_per_update} questions x {train.candidates} candidates, on {os.cpu_count()} CPU "
        f"cores, Python {platform.python_version()}, torch {version('torch')}. {questions} test questions."
    )
    other = [text for text in results.overrides if not text.startswith("output=")]
    if other:
        yield f"\nNot the settings of the files: `{' '.join(other)}`."
    yield ""
    yield schema_size_table(main, results.benchmark).markdown()
    for plot in plots:
        yield f"![{plot.stem.replace('_', ' ')}](images/{plot.name})\n"
    for metric, title in DIFFERENCES.items():
        if metric != "robust" or any(row[metric] is not None for each in main for row in each.rows):
            yield pairs_table(main, metric, title).markdown()
    yield difficulty_table(main, results.benchmark).markdown()
    yield literals_table(main, results.benchmark).markdown()
    yield training_table(results).markdown()
    if ablations:
        yield ablation_table(results).markdown()
    yield (
        "Brackets []: 95% intervals over the questions and, where a policy has several seeds, over the seeds too. "
        "†: runs of the policy failed; they are in no mean.\n"
    )


def size_table(results: FindingResults) -> Table:
    """Accuracy and table recall at each size of schema: the finding in one table."""
    return schema_size_table(read_results(results)[0], results.benchmark)


def pairs_table(evaluations: Sequence[Evaluation], metric: str, title: str) -> Table:
    """Every two policies at every size: the difference on the same questions."""
    names = policies(evaluations)
    pairs = [(a, b) for at, b in enumerate(names) for a in names[at + 1 :] if b != BASE]
    pairs += [(BASE, name) for name in names if name != BASE]
    table = Table(f"differences_{metric}", title, ["", *map(size_name, SIZES)])
    for first, second in pairs:
        sides = [(select(evaluations, first, schema=size), select(evaluations, second, schema=size)) for size in SIZES]
        table.add(f"{second} - {first}", (_difference(table, *side, metric) for side in sides))
    return table


def ablation_table(results: FindingResults) -> Table:
    """Each ablation less the full recipe of its own seed."""
    title = "Recipe with a part left out, less the full recipe (large, the same seed): accuracy, percentage points"
    table = Table("ablations", title, ["left out", *map(size_name, SIZES)])
    full = {run.config.seed: run for run in results.runs if policy_of(run) == FULL_RECIPE}
    for run in filter(is_ablation, results.runs):
        name, same = policy_of(run).replace("_", " "), full.get(run.config.seed)
        if same is None:
            table.add(name, [NOTHING] * len(SIZES))
            table.notes.append(f"{name}: no run of {FULL_RECIPE} has its seed {run.config.seed}.")
            continue
        sides = [([_read_run(same, size, results)], [_read_run(run, size, results)]) for size in SIZES]
        table.add(name, (_difference(table, *side, "equivalent") for side in sides))
    table.notes.append("One seed each: the intervals are over the questions alone.")
    return table


def _difference(table: Table, before: Sequence[Evaluation], after: Sequence[Evaluation], metric: str) -> str:
    try:
        found = difference(before, after, metric)
    except ValueError:  # one of the two has nothing to compare
        return " ".join(sorted({each.state for each in (*before, *after)} - {"finished"})) or NOTHING
    table.figures.append(found)
    return found.text()


def training_table(results: FindingResults) -> Table:
    """How the runs went: their state, and the means of their last updates."""
    head = ["run", "state", "equivalent", "reward", "rounds", "calls"]
    table = Table("training", "Training: each run, and the mean of its last updates", head)
    for record in compare(results.runs):
        mean = record.get("training")
        state = f"failed: {record['error']}" if record["state"] == "failed" else record["state"]
        cells = [NOTHING] * 4
        if mean:
            cells = [f"{mean['equivalent_rate']:.1%}", *(f"{mean[k]:.2f}" for k in ("reward", "rounds", "tool_calls"))]
        table.add([record["name"], state], cells)
    table.notes.append("Sampled at temperature 1, on the run's own corpus, with tables drawn by the sampler.")
    return table


def run_lines(results: FindingResults) -> Iterator[dict[str, Any]]:
    """A line a run, the base policy first: what it was, and what came out at each size."""
    base = {size: read_summary(evaluation_folder(results.output / BASE, size)) for size in SIZES}
    yield {"name": BASE, "evaluations": {size: kept(summary) for size, summary in base.items() if summary}}
    for run, record in zip(results.runs, compare(results.runs), strict=True):
        found = {size: read_summary(evaluation_folder(run.folder, size)) for size in SIZES}
        if record.pop("evaluations", None) is None:  # not finished
            found = {}
        yield {
            **record,
            "policy": policy_of(run),
            "seed": run.config.seed,
            "evaluations": {size: kept(summary) for size, summary in found.items() if summary},
        }


def read_summary(folder: Path) -> dict[str, Any] | None:
    """The summary of an evaluation; None where it is not finished."""
    path = folder / "summary.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def kept(summary: dict[str, Any]) -> dict[str, Any]:
    """The parts of a summary that the page's data hold."""
    return {
        **{name: summary.get(name) for name in KEPT},
        "interval": summary["intervals"]["equivalent"],
        "by_difficulty": {name: part["equivalent"] for name, part in summary["by_difficulty"].items()},
    }


def draw(evaluations: Sequence[Evaluation], benchmark: str, start: Path) -> list[Path]:
    """Accuracy and recall against the size of the schema, in files that begin with ``start``.

    None without matplotlib (extra ``plot``).
    """
    try:
        from sqale_grpo.evaluate.plots import size_plot

        start.parent.mkdir(parents=True, exist_ok=True)
        shown = [dataclasses.replace(each, benchmark=benchmark) for each in evaluations]
        files = {metric: start.with_name(f"{start.name}_{name}") for metric, name in PLOTS.items()}
        return [size_plot(shown, benchmark, metric, file) for metric, file in files.items()]
    except ModuleNotFoundError:
        print("no plots: matplotlib is not installed (pip install 'sqale-grpo[plot]')")
        return []
