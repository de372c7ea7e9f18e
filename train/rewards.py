"""Rewards as TRL takes them, and what to do about candidates whose score says nothing about the policy."""

import warnings
from collections import Counter
from typing import Any

from sqale_grpo.env.errors import UserError
from sqale_grpo.env.text import harmless
from sqale_grpo.reward import Outcome

VOID_SHARE = 0.5  # of an update's candidates: with more void ones the machine must be mended first


def execution_reward(prompts: list, completions: list, outcome: list[Outcome], **_: Any) -> list[float | None]:
    """TRL's reward function: the scored outcomes' rewards, agreement included.

    None for a void one: TRL leaves it out of its group's mean and deviation, and its advantage is 0.
    """
    return [None if o.tier == "void" else o.reward for o in outcome]


def void_together(outcomes: list[Outcome]) -> list[Outcome]:
    """A group's outcomes; all void where the gold query did not run for one, on whichever process."""
    without_gold = next((each for each in outcomes if each.tier == "void" and each.error == "not_run"), None)
    return outcomes if without_gold is None else [without_gold] * len(outcomes)


def check_void(outcomes: list[Outcome], update: int, tells: bool) -> None:
    """Say which candidates are void, where this process ``tells``; raises UserError for too many."""
    failures = Counter(outcome.message for outcome in outcomes if outcome.tier == "void")
    if not failures:
        return
    count, (most_common, _) = failures.total(), failures.most_common(1)[0]
    of = f"{count} of {len(outcomes)} candidates"
    said = harmless(f"update {update}: {of} are void; most often: {most_common}")
    if count > VOID_SHARE * len(outcomes):
        raise UserError(f"{said}. Mend that, then resume the run")
    if tells:
        warnings.warn(said, RuntimeWarning, stacklevel=2)
