"""Which questions a run draws, known from their lengths before any of them is executed.

The length buckets and the order in which a bucket's questions come are those of all questions that were read. One that
cannot be trained on (its gold query fails, or is unstable) is passed over, and the next of its bucket's order takes its
turn. So a corpus of which only the drawn questions were executed gives the batches of one that was prepared whole.
"""

import json
import struct
from array import array
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any

from sqale_grpo.curriculum import Buckets, Curriculum, MixtureSchedule


@dataclass(frozen=True)
class Measured:
    """Every question that was read and could be asked, in the order of the source.

    ``lengths``: masked gold SQL, in characters. ``rows``: number in the prepared index, -1 for one that is not there.
    """

    lengths: Sequence[int]
    difficulties: Sequence[str]
    rows: Sequence[int]


@dataclass(frozen=True)
class DrawPlan:
    """What decides a run's questions: ``updates`` of ``batch`` questions each under ``schedule``, and who may come.

    ``difficulties``: of these alone; empty takes all. ``most_luck``: at most this share of wrong queries may be taken
    for right with ``copies`` counter-databases.
    """

    seed: int
    updates: int
    batch: int
    schedule: MixtureSchedule
    percentiles: tuple[float, ...] = (50, 80, 95)
    difficulties: tuple[str, ...] = ()
    include_unstable: bool = False
    most_luck: float | None = None
    copies: int = 0

    def key(self) -> dict[str, Any]:
        """The plan as JSON gives it back."""
        return json.loads(json.dumps(asdict(self)))

    def takes(self, unstable: str, luck: Sequence[float]) -> bool:
        """Whether a question that is kept may be trained on: why its gold is ``unstable``, its ``luck`` by copies."""
        fits = self.most_luck is None or luck_with(luck, self.copies) <= self.most_luck
        return fits and (self.include_unstable or not unstable)


class Draws:
    """The batches of a plan over measured questions.

    ``places`` of measured questions count among those of the plan's difficulties, from 0.
    """

    def __init__(self, plan: DrawPlan, measured: Measured) -> None:
        self.plan = plan
        wanted = set(plan.difficulties)
        self.measured = array(
            "I", (n for n, each in enumerate(measured.difficulties) if not wanted or each in wanted)
        )  # by place: the number among all measured ones
        self.buckets = Buckets.from_lengths([measured.lengths[n] for n in self.measured], plan.percentiles)

    def curriculum(self, able: Collection[int]) -> Curriculum:
        """The batches as places, of which only those of ``able`` come. ValueError where they do not fill a batch."""
        plan = self.plan
        natural = self.buckets.shares
        schedule = MixtureSchedule(**{**vars(plan.schedule), "natural": natural})
        return Curriculum(self.buckets, schedule, plan.batch, plan.seed, able)

    def wanted(self, able: Collection[int], known: Collection[int]) -> list[int]:
        """Places that the run draws as far as can be known, without the ``known`` ones.

        ``able``: places that are good, or not known yet.
        """
        if len(able) < self.plan.batch:
            return []  # too few for a run, whatever the rest is
        curriculum = self.curriculum(able)
        drawn = curriculum.drawn(self.plan.updates)
        firsts = (islice(order, count) for order, count in zip(curriculum.orders, drawn, strict=True))
        return [place for first in firsts for place in first if place not in known]


def luck_with(shares: Sequence[float], copies: int) -> float:
    """Share of wrong mutants that are taken for right with ``copies`` counter-databases; 1 where it is not known.

    As the index keeps it, in 32 bits.
    """
    share = shares[min(copies, len(shares) - 1)] if shares else 1.0
    return struct.unpack("f", struct.pack("f", share))[0]


def by_row(rows: Iterable[int]) -> dict[int, int]:
    """The place of each row of the index."""
    return {row: place for place, row in enumerate(rows) if row >= 0}
