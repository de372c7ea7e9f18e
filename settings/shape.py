"""The shape of an update: how the episodes of a batch are shared out among processes and passes."""

import os
from dataclasses import dataclass

from sqale_grpo.settings.check import ConfigError
from sqale_grpo.settings.keys import Config


def launched_processes() -> int:
    """How many processes torchrun or accelerate started; 1 without them."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def process_index() -> int:
    """The number of this process in its launch."""
    return int(os.environ.get("RANK", "0"))


def is_main_process() -> bool:
    """Whether this process is the one that writes what all processes share."""
    return process_index() == 0


@dataclass(frozen=True)
class BatchShape:
    """One update on ``world_size`` processes; all counts are episodes but ``accumulation`` (passes an update)."""

    world_size: int
    episodes: int
    per_rank: int
    micro_batch: int
    accumulation: int
    candidates: int

    @property
    def groups(self) -> float:
        """Groups of candidates a rank; a fraction where groups straddle ranks."""
        return self.per_rank / self.candidates

    @property
    def straddles(self) -> bool:
        """Whether some group has members on two ranks."""
        return self.per_rank % self.candidates != 0


def batch_shape(config: Config, world_size: int) -> BatchShape:
    """The shape on ``world_size`` processes; ConfigError where the episodes cannot be shared out evenly.

    The micro-batch is the largest divisor of a rank's share that is not above ``train.micro_batch``.
    """
    train = config.train
    episodes = train.questions_per_update * train.candidates
    if world_size < 1 or episodes % world_size:
        fitting = ", ".join(str(size) for size in range(1, episodes + 1) if episodes % size == 0)
        raise ConfigError(
            f"{train.questions_per_update} questions x {train.candidates} candidates = {episodes} episodes "
            f"do not divide by {world_size} processes; start one of {fitting} processes, "
            "or change train.questions_per_update"
        )
    per_rank = episodes // world_size
    micro_batch = max(size for size in range(1, min(train.micro_batch, per_rank) + 1) if per_rank % size == 0)
    return BatchShape(world_size, episodes, per_rank, micro_batch, per_rank // micro_batch, train.candidates)


def accumulation(config: Config, world_size: int) -> tuple[int, int]:
    """(episodes a device passes at once, passes an update) on ``world_size`` processes; ConfigError as above."""
    shape = batch_shape(config, world_size)
    return shape.micro_batch, shape.accumulation


def check_corpus_size(config: Config, questions: int, where: str) -> None:
    """ConfigError where the corpus at ``where`` holds no question, or fewer than one update takes."""
    needed = config.train.questions_per_update
    if questions == 0:
        raise ConfigError(
            f"the corpus at {where} holds no question; see its dropped.jsonl for what was left out and why"
        )
    if questions < needed:
        raise ConfigError(
            f"the corpus at {where} holds {questions} questions, fewer than the {needed} of one update; "
            f"set train.questions_per_update={questions} or less"
        )
