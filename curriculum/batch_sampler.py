"""Batch sampler: feeds the curriculum's batches to TRL's GRPO trainer in the order that its data loader reads them."""

from collections.abc import Callable, Iterator, Sequence

from torch.utils.data import Sampler


class CurriculumSampler(Sampler[int]):
    """Dataset indices of a whole run: update t is ``batch(t)``, each index ``num_generations`` times in a row.

    TRL generates once for ``steps_per_generation * num_iterations`` micro-steps and reads the same indices again
    for each (``repeats``). Everything follows from the update's number and nothing from live state, so a loader
    that prefetches changes nothing; ``len`` covers the run as one epoch, so skipping the batches already seen on
    a resume lands on the right update, whatever the number of processes. ``repeats`` must divide evenly into
    optimizer steps as TRL does it: one update a chunk.
    """

    def __init__(
        self, batch: Callable[[int], Sequence[int]], updates: int, batch_size: int, num_generations: int, repeats: int
    ) -> None:
        for name, value in (("updates", updates), ("num_generations", num_generations), ("repeats", repeats)):
            if value < 1:
                raise ValueError(f"the curriculum sampler's {name} must be at least 1, not {value}")
        self._batch = batch
        self._updates = updates
        self._batch_size = batch_size
        self._num_generations = num_generations
        self._repeats = repeats

    def __len__(self) -> int:
        return self._updates * self._repeats * self._batch_size * self._num_generations

    def __iter__(self) -> Iterator[int]:
        for update in range(self._updates):
            indices = [index for index in self._batch(update) for _ in range(self._num_generations)]
            for _ in range(self._repeats):
                yield from indices
