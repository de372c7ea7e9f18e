"""Curriculum: the questions of an update's batch, a pure function of the seed and the update."""

from array import array
from collections.abc import Collection, Sequence

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

    ``able``: the questions that may come; the others are passed over in their bucket's order, which stays. By default
    all of them.
    """

    def __init__(
        self,
        buckets: Buckets,
        schedule: MixtureSchedule,
        batch_size: int = 18,
        seed: int = 42,
        able: Collection[int] | None = None,
    ) -> None:
        questions = len(buckets.bucket_of) if able is None else len(able)
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
        self.orders = [self._order(number, able) for number in range(len(buckets.members))]
        self._counts = DrawCounts(self.mixture, schedule.settled, batch_size, seed)

    def mixture(self, update: int) -> tuple[float, ...]:
        """Shares of the buckets at ``update``, those of empty buckets given to the others."""
        shares = self._schedule.mixture(update)
        filled = [share if order else 0.0 for share, order in zip(shares, self.orders, strict=True)]
        total = sum(filled)
        if total:
            return tuple(share / total for share in filled)
        questions = sum(map(len, self.orders))
        return tuple(len(order) / questions for order in self.orders)

    def counts(self, update: int) -> list[int]:
        """Number of questions from each bucket in the batch of ``update``."""
        return self._counts.at(update)

    def drawn(self, updates: int) -> list[int]:
        """Number of draws from each bucket in the first so many updates."""
        return self._counts.before(updates)

    def batch(self, update: int) -> list[int]:
        """Indices of the batch's questions, in a seeded order that mixes the buckets over the processes."""
        chosen = []
        starts = self._counts.before(update)
        for order, start, count in zip(self.orders, starts, self._counts.at(update), strict=True):
            chosen += [order[position % len(order)] for position in range(start, start + count)]
        rng("batch order", self._seed, update).shuffle(chosen)
        return chosen

    def _order(self, bucket: int, able: Collection[int] | None) -> Sequence[int]:
        order = array("I", self._buckets.members[bucket])
        rng("bucket order", self._seed, bucket).shuffle(order)
        return order if able is None else array("I", (question for question in order if question in able))
