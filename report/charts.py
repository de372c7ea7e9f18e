"""The page's charts: title, what to look for, and the series of every run, as plain values for the page's script."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sqale_grpo.curriculum.buckets import NAMES
from sqale_grpo.report.counts import TIERS
from sqale_grpo.report.curves import GAPS, MASKED, OFF_POLICY, STAGES, Curves, ends, published_curve, stages

Series = dict[str, Any]
LINES = ("solid", "dash", "dot")


@dataclass(frozen=True)
class Chart:
    """One chart. ``unit``: share, number or seconds. ``stacked`` charts show one run at a time.

    ``series``: (name in the curves, label, colour, line) of a run; ``published``: metrics whose published curve is
    drawn beside them.
    """

    key: str
    title: str
    note: str
    unit: str
    series: Callable[[Curves], Sequence[tuple[str, str, str, str]]]
    stacked: bool = False
    one_run: bool = False
    joined: bool = False  # its values are far apart: points, joined by lines
    published: tuple[str, ...] = ()
    anchors: bool = False


def _fixed(*names: tuple[str, str, str, str]) -> Callable[[Curves], Sequence[tuple[str, str, str, str]]]:
    return lambda curves: names


def _buckets(curves: Curves) -> list[tuple[str, str, str, str]]:
    words = [name.replace("_", " ") for name in NAMES]
    return [
        *((f"bucket/{n}", f"{w}, drawn", f"bucket-{i}", "solid") for i, (n, w) in enumerate(zip(NAMES, words))),  # noqa: B905
        *((f"planned/{n}", f"{w}, planned", f"bucket-{i}", "dash") for i, (n, w) in enumerate(zip(NAMES, words))),  # noqa: B905
    ]


def _ended(curves: Curves) -> list[tuple[str, str, str, str]]:
    names = [name for name in curves.series if name.startswith("ended_by/")]
    return [(name, name.partition("/")[2].replace("_", " "), f"stage-{i}", "solid") for i, name in enumerate(names)]


def _stages(curves: Curves) -> list[tuple[str, str, str, str]]:
    return [(name, name.removeprefix(STAGES), f"stage-{i}", "solid") for i, name in enumerate(stages(curves))]


def _gaps(curves: Curves) -> list[tuple[str, str, str, str]]:
    names = [name for name in curves.series if name.startswith(GAPS)]
    return [
        (name, f"from token {int(name.removeprefix(GAPS)):,}", f"stage-{i}", "solid") for i, name in enumerate(names)
    ]


CHARTS = (
    Chart(
        "outcomes",
        "Outcome mix",
        "Share of the update's episodes in each tier. Green should grow, and not amber in its place. Void: the machine "
        "failed, so the episode has no reward.",
        "share",
        _fixed(*((tier, tier, tier, "solid") for tier in TIERS)),
        stacked=True,
    ),
    Chart(
        "right",
        "Right and merely executable",
        "Equivalent (solid) against executable but wrong (dashed). Equivalent falling while the reward rises is a "
        "collapse: the policy is paid for wrong answers that run.",
        "share",
        _fixed(("equivalent", "equivalent", "run", "solid"), ("executable", "executable", "run", "dash")),
        published=("equivalent",),
    ),
    Chart(
        "invalid",
        "Invalid answers",
        "Answers that SQLite's parser refuses, and empty ones.",
        "share",
        _fixed(("invalid", "invalid", "run", "solid")),
        published=("invalid",),
    ),
    Chart(
        "held_out",
        "Held-out questions",
        "Equivalent on the questions of evaluate.every, the same each time, with its 95% interval (dotted).",
        "share",
        _fixed(
            ("held_out/equivalent", "equivalent", "run", "solid"),
            ("held_out/equivalent_low", "lowest", "run", "dot"),
            ("held_out/equivalent_high", "highest", "run", "dot"),
        ),
        joined=True,
    ),
    Chart(
        "reward",
        "Reward",
        "Mean over the update's episodes but void ones: 3 is right, 1 to 2.1 runs, 0.5 parses.",
        "number",
        _fixed(("reward", "reward", "run", "solid")),
    ),
    Chart(
        "shape",
        "Episode shape",
        "Tool calls (solid) and rounds (dashed) an episode. Calls above rounds: the policy batches its calls.",
        "number",
        _fixed(("tool_calls", "tool calls", "run", "solid"), ("rounds", "rounds", "run", "dash")),
        published=("tool_calls", "rounds"),
    ),
    Chart("ended", "How episodes end", "Share of the update's episodes.", "share", _ended, stacked=True),
    Chart(
        "curriculum",
        "Length curriculum",
        "Share of each length bucket: planned by the schedule (dashed) and drawn (solid).",
        "share",
        _buckets,
        one_run=True,
    ),
    Chart(
        "gate",
        "Submit gate",
        "Probability of a closed gate (dashed) and the share of episodes that had one (solid).",
        "share",
        _fixed(("gate", "drawn", "run", "solid"), ("gate_planned", "planned", "run", "dash")),
    ),
    Chart(
        "kl",
        "KL to the reference",
        "Mean a token. Vertical lines: the reference was set to the policy, so the distance starts anew.",
        "number",
        _fixed(("kl", "KL", "run", "solid")),
        anchors=True,
    ),
    Chart(
        "entropy",
        "Entropy",
        "Mean a token. Near 0 the candidates of a group become alike.",
        "number",
        _fixed(("entropy", "entropy", "run", "solid")),
    ),
    Chart(
        "variance",
        "Groups without spread",
        "Groups whose candidates all have the same reward give no gradient.",
        "share",
        _fixed(("zero_variance_groups", "groups without spread", "run", "solid")),
    ),
    Chart(
        "masked",
        "Masked ratio share",
        "Ratios that the importance correction masks (solid), and those over its cap: of whole episodes (dashed) "
        "and of tokens (dotted). Only a sampler that is not the trainer itself, as vLLM, has any.",
        "share",
        _fixed(*((name, label, "run", line) for (name, label), line in zip(MASKED.items(), LINES, strict=True))),
    ),
    Chart(
        "off_policy",
        "What the correction leaves",
        "Effective share of the update's episodes (solid): under a half, few of them carry the update. Episodes that "
        "weigh less than 0.5 (dashed), and the median weight (dotted): both go with length.",
        "share",
        _fixed(*((name, label, "run", line) for (name, label), line in zip(OFF_POLICY.items(), LINES, strict=True))),
    ),
    Chart(
        "gaps",
        "Sampler against trainer",
        "Mean absolute difference of log-probabilities, by the tokens that the policy had written before. Flat lines "
        "are rounding; one that lies above the others is a state that is carried wrongly.",
        "number",
        _gaps,
        one_run=True,
    ),
    Chart(
        "tokens",
        "Tokens written an episode",
        "Tokens that the policy wrote, tool text left out.",
        "number",
        _fixed(("written_tokens", "tokens written", "run", "solid")),
    ),
    Chart(
        "gradient",
        "Gradient norm",
        "Before clipping.",
        "number",
        _fixed(("grad_norm", "gradient norm", "run", "solid")),
    ),
    Chart("seconds", "Seconds by stage", "Where an update's time goes.", "seconds", _stages, stacked=True),
)


def chart_data(runs: Sequence[tuple[str, Curves, bool]]) -> list[dict[str, Any]]:
    """The charts of (name, curves, whether it is the paper's run) of each run, as JSON values."""
    return [_chart(chart, runs) for chart in CHARTS]


def _chart(chart: Chart, runs: Sequence[tuple[str, Curves, bool]]) -> dict[str, Any]:
    series, words = [], []
    for number, (name, curves, _) in enumerate(runs):
        drawn = [
            {"run": number, "label": label, "color": color, "line": line, "y": _rounded(curves.get(key))}
            for key, label, color, line in chart.series(curves)
            if any(value is not None for value in curves.get(key))
        ]
        series += drawn
        words.append(_in_words(name, drawn, chart.unit, 1 if chart.joined else len(curves.updates)))
    points = published_curve() if any(papers for _, _, papers in runs) else {}
    published = [
        {"label": f"published {metric.replace('_', ' ')}", "x": points["updates"], "y": points[metric]}
        for metric in chart.published
        if points
    ]
    return {
        "key": chart.key,
        "title": chart.title,
        "note": chart.note,
        "unit": chart.unit,
        "stacked": chart.stacked,
        "one_run": chart.stacked or chart.one_run,
        "series": series,
        "joined": chart.joined,
        "published": published,
        "anchors": [{"run": n, "x": curves.anchors} for n, (_, curves, _) in enumerate(runs)] if chart.anchors else [],
        "words": words,
    }


def _rounded(values: list[float | None]) -> list[float | None]:
    return [None if value is None else float(f"{value:.4g}") for value in values]


def _in_words(name: str, drawn: Sequence[Series], unit: str, updates: int) -> str:
    """The chart in words: each series' mean over the first and the last tenth of the updates; zeros left out."""
    width = max(1, updates // 10)
    parts = []
    for series in drawn:
        pair = ends(series["y"], width)
        if pair and not series["label"].endswith("planned") and max(map(abs, pair)) >= (unit == "share") * 0.005:
            parts.append(f"{series['label']} {_value(pair[0], unit)} → {_value(pair[1], unit)}")
    if parts:
        return f"{name}: {'; '.join(parts)}"
    return f"{name}: {'0% throughout' if drawn else 'not logged'}"


def _value(value: float, unit: str) -> str:
    return f"{value:.0%}" if unit == "share" else f"{value:.3g}" + (" s" if unit == "seconds" else "")
