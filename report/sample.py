"""Which groups of episodes the page holds when it cannot hold all: spread over updates and outcomes, by a seed."""

from collections.abc import Sequence
from itertools import zip_longest

from env.chance import rng
from report.counts import TIERS, Group

BLOCKS = 12  # equal spans of the run


def choose_groups(groups: Sequence[Group], limit: int, seed: int = 0) -> list[Group]:
    """Up to ``limit`` whole groups, most wanted first.

    Every block of updates and every kind of outcome takes turns, so that rare outcomes and late updates are not lost
    among the many.
    """
    strata: dict[tuple[int, str], list[Group]] = {}
    last = max((group.update for group in groups), default=0) + 1
    for group in groups:
        block = group.update * BLOCKS // last if group.update >= 0 else 0
        strata.setdefault((block, _outcome(group)), []).append(group)
    for key, members in strata.items():
        rng("report", seed, *key).shuffle(members)
    rounds = zip_longest(*(strata[key] for key in sorted(strata)))
    order = [group for members in rounds for group in members if group is not None]
    return order[:limit]


def _outcome(group: Group) -> str:
    """The group's kind: its best tier, and whether its candidates differ in tier."""
    best = min(group.tiers, key=lambda tier: TIERS.index(tier) if tier in TIERS else len(TIERS))
    return best if len(set(group.tiers)) == 1 else f"{best}, mixed"
