"""The evaluations of a run as its model card shows them: each rate with its interval and all that it is a rate of.

The initial policy stands before the checkpoints, and these by their update. The Hub's index (``model-index``) has the
exported checkpoint's alone.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqale_grpo.env.markdown import markdown_table
from sqale_grpo.settings.evaluation import EVALUATIONS

RATES = {
    "equivalent": "Execution accuracy",
    "executable": "Executes, wrong",
    "table_recall": "Every gold table opened",
    "literals_seen": "Literals seen before the answer",
    "calls": "Tool calls",
}
INDEXED = ("equivalent", "official", "robust")  # what the Hub's index gets, where an evaluation has it
SIZES = {"gold": "gold tables only", "full": "full schema", "sampled": "sampled as in training"}
PART = "§"  # marks an evaluation of a part of its benchmark
UNKNOWN = "–"


@dataclass(frozen=True)
class Evaluated:
    """One evaluation: its name, its summary, and the update of the checkpoint that played (0: the initial policy)."""

    name: str
    summary: dict[str, Any]
    update: int

    @property
    def benchmark(self) -> str:
        """Benchmark, with its split."""
        name = self.summary.get("benchmark") or self.summary.get("corpus") or UNKNOWN
        split = self.summary.get("split")
        return f"{name}, {split}" if split else name

    @property
    def tables(self) -> str:
        """How many tables an episode's database had."""
        schema = self.summary.get("schema") or UNKNOWN
        number = schema.partition(":")[2]
        return f"gold and {number} more" if number else SIZES.get(schema, schema)

    @property
    def candidates(self) -> int:
        """Episodes a question."""
        return self.summary.get("candidates") or 1


def read_evaluated(run: Path) -> list[Evaluated]:
    """The finished evaluations in a run's folder, the initial policy's first."""
    found = []
    for file in run.glob(f"{EVALUATIONS}/*/summary.json"):
        summary = json.loads(file.read_text(encoding="utf-8"))
        found.append(Evaluated(file.parent.name, summary, update_of(Path(summary["model"]))))
    return sorted(found, key=lambda each: (each.update, each.name))


def update_of(checkpoint: Path) -> int:
    """The number of updates behind a checkpoint; 0 where its folder's name does not say."""
    number = checkpoint.name.rpartition("checkpoint-")[2]
    return int(number) if "checkpoint-" in checkpoint.name and number.isdecimal() else 0


def policy(path: str) -> str:
    """A policy as others may read it: its name on the Hub, of a folder of this machine the last part."""
    return Path(path).name if path.count("/") != 1 or path.startswith((".", "~", "/")) or Path(path).is_dir() else path


def evaluations(run: Path) -> str:
    """The evaluations as a part of the card, a dash for what one does not have; "" where there is none."""
    found = read_evaluated(run)
    if not found:
        return ""
    head = ["Evaluation", "Policy", "Benchmark", "Tables", "Temperature", "Candidates", "Questions"]
    rows = [
        [
            *(each.name, policy(each.summary["model"]), each.benchmark, each.tables),
            *(str(each.summary.get("temperature", UNKNOWN)), str(each.candidates), _questions(each.summary)),
            *(_rate(each.summary, metric) for metric in RATES),
            each.summary.get("identity", UNKNOWN),
        ]
        for each in found
    ]
    text = (
        "In brackets: the 95% interval. Rates are those of single answers; of several candidates, the mean. Every "
        "evaluation's questions are chosen by its seed, without a submit gate. Identity: a digest of all that decides "
        "the figures beside the model; equal ones are equal measurements."
    )
    if any(PART in row[6] for row in rows):
        text += f" {PART}: so much of the benchmark's questions could not be asked."
    table = markdown_table([*head, *RATES.values(), "Identity"], rows)
    return "\n\n".join(["## Evaluation", table, text, *_votes(found)])


def _votes(found: list[Evaluated]) -> list[str]:
    """What several candidates answer together, where an evaluation had some."""
    rows = []
    for each in found:
        vote = each.summary.get("calibration") or {}
        apart = vote.get("held_out") or {}
        if apart.get("accuracy"):
            cells = (_shown(apart[name]) for name in ("answered", "accuracy"))
            rows.append([each.name, f"{vote['threshold']:.0%} of {vote['candidates']}", *cells])
    if not rows:
        return []
    head = ["Evaluation", "Candidates that must agree", "Questions answered", "Accuracy of what is answered"]
    text = (
        "One answer by the votes of several candidates, or none; each half of the questions at the other's threshold:"
    )
    return [text, markdown_table(head, rows)]


def model_index(name: str, run: Path, checkpoint: Path) -> list[dict[str, Any]]:
    """The Hub's index of the exported checkpoint's results; [] where it was not evaluated."""
    results = []
    for each in read_evaluated(run):
        summary = each.summary
        if Path(summary["model"]).name != checkpoint.name:
            continue
        how = f"{each.tables}, temperature {summary.get('temperature', UNKNOWN)}, candidates {each.candidates}"
        metrics = [
            {
                "type": "execution_accuracy" if metric == "equivalent" else f"{metric}_accuracy",
                "name": f"{RATES.get(metric, metric)} ({how}; 95% interval {_interval(summary, metric)})",
                "value": round(100 * summary[metric], 2),
            }
            for metric in INDEXED
            if summary.get(metric) is not None
        ]
        dataset = {"type": summary.get("corpus", each.benchmark), "name": f"{each.benchmark}, {how}"}
        dataset |= {"split": summary["split"]} if summary.get("split") else {}
        task = {"type": "text-generation", "name": "Text-to-SQL with tools"}
        results.append({"task": task, "dataset": dataset, "metrics": metrics})
    return [{"name": name, "results": results}] if results else []


def _interval(summary: dict[str, Any], metric: str) -> str:
    found = (summary.get("intervals") or {}).get(metric)
    return "unknown" if not found else " to ".join(f"{100 * end:.1f}" for end in found)


def _questions(summary: dict[str, Any]) -> str:
    """How many were asked; of a benchmark of which more than 1% is missing, how much that is."""
    lost = summary.get("missing_share") or 0.0
    return str(summary.get("n", UNKNOWN)) + (f" ({PART} {lost:.1%} missing)" if lost > 0.01 else "")


def _rate(summary: dict[str, Any], metric: str) -> str:
    value = summary.get(metric)
    if value is None:
        return UNKNOWN
    form = "{:.1f}" if metric == "calls" else "{:.1%}"
    interval = (summary.get("intervals") or {}).get(metric)
    between = f" ({' to '.join(form.format(end) for end in interval)})" if interval else ""
    return form.format(value) + between


def _shown(rate: dict[str, Any]) -> str:
    return f"{rate['value']:.1%} ({rate['low']:.1%} to {rate['high']:.1%})"
