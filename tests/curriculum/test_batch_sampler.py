"""The batch sampler gives TRL the same groups on any number of processes, and after a resume."""

import pytest
from accelerate.data_loader import BatchSamplerShard, SkipBatchSampler
from torch.utils.data import BatchSampler

from sqale_grpo.curriculum import Buckets, Curriculum, MixtureSchedule
from sqale_grpo.curriculum.batch_sampler import CurriculumSampler

UPDATES = 5
CURRICULUM_BUCKETS, SCHEDULE = Buckets.from_lengths(range(500)), MixtureSchedule(warmup=2, ramp=2)
CURRICULUM = Curriculum(CURRICULUM_BUCKETS, SCHEDULE, 18, 42)


def shares(world: int, repeats: int, curriculum: Curriculum, candidates: int) -> list[list[list[int]]]:
    """What each process reads, batch by batch, as TRL and accelerate cut it: a batch is 144 / world episodes."""
    sampler = CurriculumSampler(curriculum.batch, UPDATES, 144 // candidates, candidates, repeats)
    batches = BatchSampler(sampler, batch_size=144 // world, drop_last=False)
    return [list(BatchSamplerShard(batches, world, rank, split_batches=False)) for rank in range(world)]


@pytest.mark.parametrize("world", [1, 2, 3, 4, 6, 8, 9])
@pytest.mark.parametrize("repeats", [1, 4])
@pytest.mark.parametrize(("questions", "candidates"), [(18, 8), (4, 36)])
def test_the_processes_together_read_the_batch_of_each_update(
    world: int, repeats: int, questions: int, candidates: int
) -> None:
    curriculum = Curriculum(CURRICULUM_BUCKETS, SCHEDULE, questions, 42)
    read = shares(world, repeats, curriculum, candidates)
    assert {len(batches) for batches in read} == {UPDATES * repeats}
    for step in range(UPDATES * repeats):
        joined = [index for batches in read for index in batches[step]]
        assert joined == [index for index in curriculum.batch(step // repeats) for _ in range(candidates)]


def test_the_length_covers_the_whole_run() -> None:
    sampler = CurriculumSampler(CURRICULUM.batch, UPDATES, 18, 8, 4)
    assert len(sampler) == len(list(sampler)) == UPDATES * 4 * 144


def test_skipping_the_batches_seen_goes_on_where_the_run_stopped() -> None:
    sampler = CurriculumSampler(CURRICULUM.batch, UPDATES, 18, 8, 4)
    batches = BatchSampler(sampler, batch_size=144, drop_last=False)
    assert list(SkipBatchSampler(batches, skip_batches=3 * 4)) == list(batches)[3 * 4 :]


def test_two_passes_are_equal() -> None:
    sampler = CurriculumSampler(CURRICULUM.batch, UPDATES, 18, 8, 1)
    assert list(sampler) == list(sampler)


@pytest.mark.parametrize("name", ["updates", "num_generations", "repeats"])
def test_bad_input_is_named(name: str) -> None:
    arguments = {"updates": 1, "num_generations": 8, "repeats": 1, name: 0}
    with pytest.raises(ValueError, match=f"{name} must be at least 1"):
        CurriculumSampler(CURRICULUM.batch, batch_size=18, **arguments)
