"""Draw counts: how many questions of each bucket a batch takes, whole numbers whose expectation is the mixture.

Update t rounds the batch's expected counts e_1 … e_4 (batch size times mixture) systematically: with one uniform
u_t in [0, 1), bucket b gets floor(P_b + u_t) - floor(P_(b-1) + u_t), where P_b = e_1 + … + e_b.
- It is floor(e_b) or ceil(e_b), never negative, and the counts sum to the batch size, because P_4 is that whole number.
- Its expectation is e_b: for a uniform u, E floor(x + u) = x for every x, so E of the difference is P_b - P_(b-1).

Where a bucket's permutation stands before update t is the sum of its counts over all updates before. Up to the
update from which the mixture is constant these sums are a table, computed once. After it updates form blocks of
``BLOCK``, and the u of a block are (v + i) / BLOCK for i = 0 … BLOCK - 1 in a seeded order, with one seeded v: each
is still uniform in [0, 1), and by Hermite's identity, the sum over i of floor(x + (v + i) / n) = floor(n x + v), all
blocks draw the same sums. So the position at any update is a multiplication and at most one block away.
"""

from collections.abc import Callable, Sequence
from itertools import accumulate

from sqale_grpo.env.chance import rng

BLOCK = 16
# Fixed point instead of floats: sums of shares that differ in the last bit cannot move a draw to an empty bucket.
_BITS = 40
_ONE = 1 << _BITS
_STEP = _ONE // BLOCK


class DrawCounts:
    """Counts by bucket of every update: a pure function of the seed, the mixture and the batch size.

    ``mixture(update)`` gives shares that sum to 1 and do not change from update ``settled`` on.
    """

    def __init__(self, mixture: Callable[[int], Sequence[float]], settled: int, batch_size: int, seed: int) -> None:
        self._settled = settled
        self._seed = seed
        self._before = [[0] * len(mixture(0))]
        chance = rng("rounding", seed)
        for update in range(settled):
            counts = _round(_edges(mixture(update), batch_size), chance.getrandbits(_BITS))
            self._before.append([position + count for position, count in zip(self._before[-1], counts, strict=True)])
        self._edges = _edges(mixture(settled), batch_size)
        self._offset = chance.getrandbits(_BITS) % _STEP
        self._block = _differences([(edge * BLOCK + self._offset * BLOCK) >> _BITS for edge in self._edges])

    def before(self, update: int) -> list[int]:
        """Draws from each bucket in all updates before this one."""
        if update <= self._settled:
            return list(self._before[update])
        block, place = divmod(update - self._settled, BLOCK)
        drawn = [start + block * each for start, each in zip(self._before[-1], self._block, strict=True)]
        for uniform in self._uniforms(block)[:place]:
            drawn = [position + count for position, count in zip(drawn, _round(self._edges, uniform), strict=True)]
        return drawn

    def at(self, update: int) -> list[int]:
        """Draws from each bucket in this update; they sum to the batch size."""
        if update < self._settled:
            return [after - before for before, after in zip(*self._before[update : update + 2], strict=True)]
        block, place = divmod(update - self._settled, BLOCK)
        return _round(self._edges, self._uniforms(block)[place])

    def _uniforms(self, block: int) -> list[int]:
        order = list(range(BLOCK))
        rng("rounding", self._seed, block).shuffle(order)
        return [self._offset + place * _STEP for place in order]


def _edges(mixture: Sequence[float], batch_size: int) -> list[int]:
    """Cumulative expected counts in fixed point; the last one is the batch size itself."""
    sums = [round(share * batch_size * _ONE) for share in accumulate(mixture)]
    return [min(edge, batch_size * _ONE) for edge in sums[:-1]] + [batch_size * _ONE]


def _round(edges: Sequence[int], uniform: int) -> list[int]:
    return _differences([(edge + uniform) >> _BITS for edge in edges])


def _differences(sums: Sequence[int]) -> list[int]:
    return [high - low for low, high in zip([0, *sums], sums, strict=False)]
