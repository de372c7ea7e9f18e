"""Curriculum: the questions of an update's batch, a pure function of the seed and the update."""

from array import array
from collections.abc import Sequence

from sqale_grpo.curriculum.buckets import Buckets
from sqale_grpo.curriculum.mixture import MixtureSchedule
from sqale_grpo.curriculum.rounding import DrawCounts
from sqale_grpo.env.chance import rng


class Curriculum:
    """Batches of question indices under a mixture schedule.

    Each bucket has one seeded order of its questions, which it goes through again and again: any
    ``len(bucket)`` draws in a row are different questions, so each comes once before any comes again, and a
    batch holds none twice unless its share is larger than the bucket. An empty bucket (many questions of one
    length) leaves its share to the others in proportion to theirs.
    """

    def __init__(self, buckets: Buckets, schedule: MixtureSchedule, batch_size: int = 18, seed: int = 42) -> None:
        questions = len(buckets.bucket_of)
        if batch_size < 1:
            raise ValueError(f"a batch holds at least one question, not {batch_size}")
        if questions < batch_size:
            raise ValueError(
                f"the corpus has {questions} questions, fewer than a batch of {batch_size}: "
                "prepare more questions or lower the number of questions a batch"
            )
        self._buckets = buckets
        self._schedule = schedule
        self._seed = seed
        self._orders = [self._order(number) for number in range(len(buckets.members))]
        self._counts = DrawCounts(self.mixture, schedule.settled, batch_size, seed)

    def mixture(self, update: int) -> tuple[float, ...]:
        """Shares of the buckets at ``update``, those of empty buckets given to the others."""
        shares = self._schedule.mixture(update)
        filled = [share if members else 0.0 for share, members in zip(shares, self._buckets.members, strict=True)]
        total = sum(filled)
        return tuple(share / total for share in filled) if total else self._buckets.shares

    def counts(self, update: int) -> list[int]:
        """Number of questions from each bucket in the batch of ``update``."""
        return self._counts.at(update)

    def batch(self, update: int) -> list[int]:
        """Indices of the batch's questions, in a seeded order that mixes the buckets over the processes."""
        chosen = []
        starts = self._counts.before(update)
        for order, start, count in zip(self._orders, starts, self._counts.at(update), strict=True):
            chosen += [order[position % len(order)] for position in range(start, start + count)]
        rng("batch order", self._seed, update).shuffle(chosen)
        return chosen

    def _order(self, bucket: int) -> Sequence[int]:
        order = array("I", self._buckets.members[bucket])
        rng("bucket order", self._seed, bucket).shuffle(order)
        return order
