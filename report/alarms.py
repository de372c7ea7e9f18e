"""Warnings that the page shows at its top: patterns in the curves that a person should look at first.

Each compares the run's last window of updates with an earlier one and counts only what chance does not explain.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from sqale_grpo.report.curves import GAPS, Curves, Values

GAP = 0.05  # nats a token between sampler and trainer that no rounding explains
LITTLE = 0.3  # of the episodes of an update
ERRORS = 3.0  # standard errors beyond which a change is no chance


@dataclass(frozen=True)
class Window:
    """Means over the updates ``start`` … ``end`` (indices, the end left out) that have values."""

    start: int
    end: int


def alarms(curves: Curves, cap: float = 3.0) -> list[str]:
    """Sentences for the reader, gravest first; empty for a run that is healthy or too short to tell.

    ``cap``: of the importance ratio.
    """
    count = len(curves.updates)
    width = max(3, count // 10)
    first = [text for text in (_broken(curves), _void(curves)) if text]
    if count < 2 * width:
        return first
    windows = [Window(start, start + width) for start in range(0, count - width + 1, max(1, width // 2))]
    windows[-1] = Window(count - width, count)
    last = windows[-1]
    checks = (
        _other_engine(curves, last, cap),
        _collapse(curves, windows),
        _invalid(curves, windows),
        _no_gradient(curves, last),
        _light(curves, last),
    )
    return first + [text for text in checks if text]


def mean(values: Values, window: Window) -> float | None:
    """The mean of the values in the window; None where there are none."""
    known = [value for value in values[window.start : window.end] if value is not None]
    return sum(known) / len(known) if known else None


def _collapse(curves: Curves, windows: Sequence[Window]) -> str | None:
    """Reward rising while right answers become rarer: the policy earns its reward with wrong queries."""
    equivalent, reward = curves.get("equivalent"), curves.get("reward")
    last = windows[-1]
    now, paid = mean(equivalent, last), mean(reward, last)
    if now is None or paid is None:
        return None
    for window in sorted(windows[:-1], key=lambda w: -(mean(equivalent, w) or 0.0)):
        then, before = mean(equivalent, window), mean(reward, window)
        if then is None or before is None or window.end > last.start:
            continue
        if _differs(curves, then, now, window) and now < 0.8 * then and paid > before:
            return (
                f"Collapse: equivalent fell from {then:.0%} ({_span(curves, window)}) to {now:.0%} "
                f"({_span(curves, last)}) while the reward rose from {before:.2f} to {paid:.2f}. The policy is paid "
                "for answers that run but are wrong."
            )
    return None


def _invalid(curves: Curves, windows: Sequence[Window]) -> str | None:
    invalid, last = curves.get("invalid"), windows[-1]
    now = mean(invalid, last)
    earlier = [(mean(invalid, w), w) for w in windows[:-1] if w.end <= last.start]
    known = [(value, window) for value, window in earlier if value is not None]
    if now is None or not known:
        return None
    then, window = min(known, key=lambda pair: pair[0])
    if now > max(0.1, 2 * then) and _differs(curves, then, now, window):
        return (
            f"Invalid answers came back: {then:.0%} ({_span(curves, window)}), {now:.0%} ({_span(curves, last)}). "
            "Read how those episodes end."
        )
    return None


def _no_gradient(curves: Curves, last: Window) -> str | None:
    share = mean(curves.get("zero_variance_groups"), last)
    if share is not None and share > 0.8:
        return (
            f"In {share:.0%} of the groups ({_span(curves, last)}) all candidates have the same reward, so they give "
            "no gradient: the questions are too easy or too hard, or the policy has lost its variety."
        )
    return None


def _other_engine(curves: Curves, last: Window, cap: float) -> str | None:
    """What generates is not the policy that is trained, or does not report its own probabilities."""
    span = _span(curves, last)
    gap = mean(curves.get("sampling/logp_difference"), last)
    if gap is not None and gap > GAP:
        return (
            f"Sampler and trainer are {gap:.2g} nats a token apart ({span}): the engine holds other weights or works "
            "otherwise. `sqale-grpo train ... --preflight` looks at it."
        )
    over = mean(curves.get("importance/sequences_over_cap"), last)
    if over is not None and over > 1 / cap:
        return (
            f"{over:.0%} of the importance ratios are over {cap:g} ({span}). For a sampler that reports its own "
            f"probabilities that is {1 / cap:.0%} at most, at any length: the log-probabilities are not the sampler's."
        )
    places = sorted((int(n.removeprefix(GAPS)), n) for n in curves.series if n.startswith(GAPS))
    gaps = [value for _, name in places if (value := mean(curves.get(name), last)) is not None]
    if len(gaps) > 1 and gaps[-1] > 3 * gaps[0] + GAP / 10:
        return (
            f"Sampler and trainer grow apart along an episode, from {gaps[0]:.2g} to {gaps[-1]:.2g} nats a token "
            f"({span}): a state that one of them carries wrongly. Try rollout.vllm_prefix_caching=false."
        )
    return None


def _light(curves: Curves, last: Window) -> str | None:
    share = mean(curves.get("importance/effective_share"), last)
    if share is not None and share < LITTLE:
        return (
            f"The effective share of an update's episodes is {share:.0%} ({_span(curves, last)}): the importance "
            "ratios leave most of them next to no weight. A closer engine, or train.importance_level=token."
        )
    return None


def _broken(curves: Curves) -> str | None:
    """The loss was logged at the last updates and is no number there. An update under way has logged nothing yet."""
    losses, seconds = curves.get("loss"), curves.get("seconds/update")
    logged = [index for index, value in enumerate(seconds) if value is not None]
    if "loss" not in curves.series or not logged or losses[logged[-1]] is not None:
        return None
    known = [index for index, value in enumerate(losses) if value is not None]
    return f"The loss is no number {f'after update {curves.updates[known[-1]]}' if known else 'at any update'}."


def _void(curves: Curves) -> str | None:
    """Episodes that the machine kept from an end: a few are harmless, and say what to mend."""
    shares = {update: share for update, share in zip(curves.updates, curves.get("void"), strict=True) if share}
    if not shares:
        return None
    worst = max(shares, key=lambda update: shares[update])
    return (
        f"The machine failed in episodes of {len(shares)} of {len(curves.updates)} updates, most in update {worst} "
        f"({shares[worst]:.0%}): they are void and have no reward. Their records say why."
    )


def _differs(curves: Curves, a: float, b: float, window: Window) -> bool:
    """Whether two rates, each over a window's episodes, differ by more than chance."""
    episodes = curves.episodes / max(1, len(curves.updates)) * (window.end - window.start)
    middle = (a + b) / 2
    # A group's candidates answer one question, so they count as half as many at best.
    error = math.sqrt(max(1e-9, middle * (1 - middle)) * 2 / max(1.0, episodes / 2))
    return abs(a - b) > ERRORS * error


def _span(curves: Curves, window: Window) -> str:
    return f"updates {curves.updates[window.start]}–{curves.updates[window.end - 1]}"
