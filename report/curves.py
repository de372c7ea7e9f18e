"""A run's curves: what each update counted and measured, what was planned, and what the charts draw of both.

The published training curve of the paper's run stands beside them: 277 points of the authors' project page (SQaLe run,
logged every 6 updates up to update 1,658 of 1,800), in ``assets/published_curve.json``.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from sqale_grpo.curriculum import gate_probability
from sqale_grpo.curriculum.buckets import NAMES
from sqale_grpo.report.counts import TIERS, FileCounts
from sqale_grpo.report.episodes import finite
from sqale_grpo.report.folders import RunFolder
from sqale_grpo.settings.keys import Config

PUBLISHED = Path(__file__).parent / "assets" / "published_curve.json"


@cache
def published_curve() -> dict[str, list[float]]:
    """The published points by metric: shares and counts an episode; ``updates``: the middle of a point's window.

    A published point at step s is the mean over the updates s - 6 ... s - 1, counted from 0; the last, at 1,658, over
    what was logged since the one before.
    """
    values = json.loads(PUBLISHED.read_text(encoding="utf-8"))
    del values["source"]
    steps = values.pop("updates")
    starts = [0, *steps[:-1]]
    return {"updates": [(start + step - 1) // 2 for start, step in zip(starts, steps, strict=True)], **values}


def is_papers_run(config: Config | None) -> bool:
    """Whether a run has the model, the data, the batch and the length of the paper's SQaLe run."""
    if config is None:
        return False
    train = config.train
    return (
        config.model.path.rstrip("/").endswith("Qwen3.5-2B")
        and config.corpus.name == "sqale"
        and (train.questions_per_update, train.candidates, train.updates) == (18, 8, 1_800)
        and config.curriculum.strength == 1.0
    )


# How much of the sampler's tokens the importance correction touched; only a sampler other than the trainer logs it.
MASKED = {
    "importance/masked_ratio_share": "masked",
    "importance/sequences_over_cap": "episodes over the cap",
    "importance/tokens_over_cap": "tokens over the cap",
}
# What the correction leaves of an update, and where sampler and trainer are apart.
OFF_POLICY = {
    "importance/effective_share": "effective share",
    "importance/weight_under_half": "weights under 0.5",
    "importance/weight_median": "median weight",
}
GAPS = "importance/gap_from_"
STAGES = "seconds/"
HELD_OUT = ("equivalent", "equivalent_low", "equivalent_high")
Values = list[float | None]


@dataclass(frozen=True)
class Curves:
    """Series over ``updates`` by name; a value that an update lacks is None.

    Shares: the tiers, ``ended_by/…``, ``bucket/…`` (drawn), ``planned/…``, ``gate``, ``gate_planned``. ``seconds/…``
    by stage. ``held_out/…`` on the held-out questions. ``anchors``: the updates before which the reference policy
    became the policy.
    """

    updates: list[int]
    episodes: int
    series: dict[str, Values] = field(default_factory=dict)
    anchors: list[int] = field(default_factory=list)

    def get(self, name: str) -> Values:
        """The series, or one without values."""
        return self.series.get(name, [None] * len(self.updates))


def run_curves(run: RunFolder, counts: Sequence[FileCounts]) -> Curves:
    """The curves of ``run``. Rates come from its episodes; what episodes do not hold, from its metrics."""
    by_update = {count.update: count for count in counts if count.update >= 0}
    metrics = {values["update"]: values for values in run.metrics}
    updates = sorted(by_update.keys() | metrics.keys())
    series: dict[str, Values] = {}

    def taken(name: str, value: Callable[[FileCounts], float | None], logged: str | None = None) -> None:
        rates = {update: rate for update, count in by_update.items() if (rate := value(count)) is not None}
        series[name] = [rates[u] if u in rates else _number(metrics.get(u, {}).get(logged or name)) for u in updates]

    def counted(name: str, number: Callable[[FileCounts], int | None], logged: str | None = None) -> None:
        taken(name, lambda c: None if (total := number(c)) is None else total / c.episodes, logged)

    for tier in TIERS:
        counted(tier, lambda c, tier=tier: c.number("tier", tier), f"{tier}_rate")  # type: ignore[misc]
    taken("reward", lambda c: c.reward)
    counted("gate", lambda c: c.gated, "gate_rate")
    for column, names in (("bucket", NAMES), ("ended_by", _values(counts, "ended_by"))):
        for name in names:
            counted(f"{column}/{name}", lambda c, n=name, k=column: c.number(k, n))  # type: ignore[misc]
    for name in dict.fromkeys(name for values in run.metrics for name in values):
        if name not in series and name != "update":
            series[name] = [_number(metrics.get(u, {}).get(name)) for u in updates]
    # After so many updates: drawn at the last of them, and at the first one before any.
    lines = {max(0, line["update"] - 1): line for line in run.held_out}
    for name in HELD_OUT:
        series[f"held_out/{name}"] = [_number(lines.get(u, {}).get(name)) for u in updates]
    anchors: list[int] = []
    if run.config is not None:
        series |= planned(run.config, updates)
        every = run.config.train.anchor_updates
        anchors = [u for u in updates if every and u and u % every == 0]
    return Curves(updates, sum(count.episodes for count in counts), series, anchors)


def planned(config: Config, updates: Iterable[int]) -> dict[str, Values]:
    """The mixture and the gate's probability that the configuration sets for each update.

    A strength under 1 blends in the corpus' own shares: taken as what the percentiles mean, where lengths do not tie.
    """
    section, updates = config.curriculum, list(updates)
    schedule = section.schedule()
    mixtures = [schedule.mixture(update) for update in updates]
    shares: dict[str, Values] = {
        f"planned/{name}": [mixture[place] for mixture in mixtures] for place, name in enumerate(NAMES)
    }
    gate: Values = [gate_probability(update, section.gate_start, section.gate_updates) for update in updates]
    return {**shares, "gate_planned": gate}


def stages(curves: Curves) -> list[str]:
    """The stages whose seconds were logged, without their sum."""
    return [name for name in curves.series if name.startswith(STAGES) and name != f"{STAGES}update"]


def ends(values: Values, width: int) -> tuple[float, float] | None:
    """Means of the first and the last ``width`` values that there are; None without any."""
    known = [value for value in values if value is not None]
    if not known:
        return None
    first, last = known[:width], known[-width:]
    return sum(first) / len(first), sum(last) / len(last)


def _values(counts: Sequence[FileCounts], column: str) -> list[str]:
    return sorted({value for count in counts for value in count.by.get(column, ())})


def _number(value: Any) -> float | None:
    return finite(float(value)) if isinstance(value, int | float) else None
