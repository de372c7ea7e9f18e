"""Plots of evaluations as SVG: accuracy against schema size, table recall against schema size, size against compute.

The same evaluations give the same bytes. Without matplotlib (extra ``plot``) ``draw_plots`` says so and draws nothing.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqale_grpo.env.files import whole_file
from sqale_grpo.evaluate import published
from sqale_grpo.evaluate.evaluations import Evaluation, benchmarks, policies, sizes
from sqale_grpo.evaluate.figures import Figure, figure
from sqale_grpo.evaluate.other_tables import calibration_table
from sqale_grpo.evaluate.table_data import benchmark_name, card_name, largest_size, policy_label, select, size_name

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

WIDTH, HEIGHT = 6.4, 4.0  # inches
SIZE_MARKS = {"gold": "gold", "full": "full", "sampled": "sampled"}


def draw_plots(evaluations: Sequence[Evaluation], folder: Path) -> list[Path]:
    """Every plot that the evaluations can fill, written to ``folder``; returns the files."""
    try:
        import matplotlib  # noqa: F401
    except ModuleNotFoundError:
        print("no plots: matplotlib is not installed (pip install 'sqale-grpo[plot]')", file=sys.stderr)
        return []
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for benchmark in benchmarks(evaluations):
        mine = select(evaluations, benchmark=benchmark)
        if len(sizes(mine)) > 1:
            for metric, name in (("equivalent", "accuracy"), ("table_recall", "recall")):
                files.append(size_plot(mine, benchmark, metric, folder / f"{name}_by_size_{benchmark}.svg"))
        files += filter(None, [compute_plot(mine, benchmark, folder / f"compute_{benchmark}.svg")])
        files += filter(None, [calibration_plot(mine, benchmark, folder / f"calibration_{benchmark}.svg")])
    return files


def size_plot(evaluations: Sequence[Evaluation], benchmark: str, metric: str, path: Path) -> Path:
    """A metric (``equivalent`` or ``table_recall``) against the size of the schema, a line a policy, with intervals."""
    mine = select(evaluations, benchmark=benchmark)
    marks = [size for size in sizes(mine) if size != "sampled"] or sizes(mine)
    drawing, axes = _axes()
    for number, name in enumerate(policies(mine)):
        points = [
            (at, figure(select(mine, name, schema=size), metric))
            for at, size in enumerate(marks)
            if select(mine, name, schema=size)
        ]
        colour = f"C{number % 10}"
        shift = 0.03 * (number - (len(policies(mine)) - 1) / 2)  # intervals of several policies side by side
        _with_intervals(
            axes, [(at + shift, each) for at, each in points], policy_label(select(mine, name)), colour, "-o"
        )
        card = published.SCHEMA_SIZE.get(card_name(select(mine, name)) or "", {}) if benchmark == "sqale" else {}
        known = [
            (at, card[size].accuracy if metric == "equivalent" else card[size].recall)
            for at, size in enumerate(marks)
            if size in card
        ]
        if known:
            axes.plot(
                *zip(*known, strict=True),
                "--",
                color=colour,
                alpha=0.6,
                label=f"{card_name(select(mine, name))}, published",
            )
    axes.set_xticks(
        range(len(marks)), [SIZE_MARKS.get(size, size.replace("distractors:", "gold + ")) for size in marks]
    )
    axes.set_xlabel("tables in the database")
    axes.set_ylabel("accuracy, %" if metric == "equivalent" else "every gold table opened, % of episodes")
    axes.set_ylim(0, 100)
    axes.set_title(plain(benchmark_name(benchmark)))
    axes.legend(fontsize="small")
    return _save(drawing, path)


def compute_plot(evaluations: Sequence[Evaluation], benchmark: str, path: Path) -> Path | None:
    """Accuracy against TFLOPs a question (each turn's context again), a point a policy; None where none is known.

    On the questions of the card's difficulty where the benchmark is the card's, its figures beside ours.
    """
    mine = select(evaluations, benchmark=benchmark)
    mine = select(mine, schema=largest_size(mine))
    difficulty = published.COMPUTE_DIFFICULTY if benchmark == "sqale" else ""
    drawing, axes = _axes()
    drawn = 0
    for number, name in enumerate(policies(mine)):
        here = select(mine, name)
        accuracy, compute = (figure(here, metric, difficulty) for metric in ("equivalent", "tflops_reprocessed"))
        if accuracy.value is not None and compute.value is not None:
            _with_intervals(axes, [(compute.value, accuracy)], policy_label(here), f"C{number % 10}", "o")
            drawn += 1
    if not drawn:
        return None
    known = published.COMPUTE if benchmark == "sqale" else {}
    if known:
        points = [(tflops, accuracy_known) for accuracy_known, tflops, _ in known.values()]
        axes.plot(*zip(*points, strict=True), "D", color="none", markeredgecolor="0.4", label="published")
        for name, at in zip(known, points, strict=True):
            axes.annotate(name, at, (3, 3), textcoords="offset points", fontsize=5, color="0.4")
    axes.set_xscale("log")
    axes.set_xlabel("TFLOPs a question (2 x parameters x tokens, each turn's context again)")
    axes.set_ylabel("accuracy, %")
    axes.set_ylim(0, 100)
    axes.set_title(plain(benchmark_name(benchmark)) + (difficulty and f", {difficulty} questions"))
    axes.legend(fontsize="small")
    return _save(drawing, path)


def calibration_plot(evaluations: Sequence[Evaluation], benchmark: str, path: Path) -> Path | None:
    """Accuracy of what is answered against the share answered, a point a threshold of agreement; None without votes."""
    table = calibration_table(evaluations, benchmark)
    if table is None:
        return None
    drawing, axes = _axes()
    for number, name in enumerate(dict.fromkeys((each.policy, each.schema) for each in table.figures)):
        mine = [each for each in table.figures if (each.policy, each.schema) == name and "held out" not in each.metric]
        points = [(100 * a.value, b) for a, b in zip(mine[::2], mine[1::2], strict=True) if a.value is not None]
        _with_intervals(axes, points, f"{name[0]}, {size_name(name[1]).lower()}", f"C{number % 10}", "-o")
    axes.set_xlabel("questions answered, %")
    axes.set_ylabel("accuracy of what is answered, %")
    axes.set_xlim(0, 105)
    axes.set_ylim(0, 105)
    axes.set_title(plain(benchmark_name(benchmark)))
    axes.legend(fontsize="small")
    return _save(drawing, path)


def _with_intervals(axes: Any, points: Sequence[tuple[float, Figure]], label: str, colour: str, form: str) -> None:
    known = [(x, each.value, each.low, each.high) for x, each in points if each.value is not None]
    if not known:
        return
    x = [x for x, *_ in known]
    y = [100 * value for _, value, *_ in known]
    below = [100 * max(0.0, value - (value if low is None else low)) for _, value, low, _ in known]
    above = [100 * max(0.0, (value if high is None else high) - value) for _, value, _, high in known]
    axes.errorbar(x, y, [below, above], fmt=form, color=colour, capsize=3, label=plain(label))


def plain(name: str) -> str:
    """A name as matplotlib shows it: dollars begin no formula, and a leading underscore hides nothing."""
    return (" " + name if name.startswith("_") else name).replace("$", r"\$")


def _axes() -> tuple["Drawing", Any]:
    from matplotlib.figure import Figure as Drawing

    drawing = Drawing(figsize=(WIDTH, HEIGHT), layout="constrained")
    axes = drawing.add_subplot()
    axes.grid(alpha=0.3)
    return drawing, axes


def _save(drawing: "Drawing", path: Path) -> Path:
    from matplotlib import rc_context

    # Neither a date nor random names in the file: the same figures give the same bytes.
    with rc_context({"svg.hashsalt": path.stem, "svg.fonttype": "none"}), whole_file(path) as file:
        drawing.savefig(file, format="svg", metadata={"Date": None})
    return path
