"""An experiment: everything a run needs besides the model, built from its configuration."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from datasets import Dataset
from torch.utils.data import Sampler
from transformers import PreTrainedTokenizerBase

from sqale_grpo.corpus import PreparedCorpus
from sqale_grpo.curriculum.batch_sampler import CurriculumSampler
from sqale_grpo.rollout.chat import ChatFrame, chat_frame
from sqale_grpo.rollout.group import EpisodeSettings, episode_settings
from sqale_grpo.rollout.play import TOOL_THREADS
from sqale_grpo.rollout.world import EpisodeJob, gate
from sqale_grpo.settings.draws import RunDraws
from sqale_grpo.settings.keys import Config
from sqale_grpo.settings.sampling import Sampling


@dataclass(frozen=True)
class Experiment:
    """A training run's fixed parts.

    ``first_update``: where this start of the run begins, or goes on. ``left_out``: updates that are not played.
    """

    config: Config
    folder: Path
    corpus: PreparedCorpus
    dataset: Dataset
    draws: RunDraws
    settings: EpisodeSettings
    frame: ChatFrame
    sampling: Sampling
    pool: ThreadPoolExecutor
    first_update: int = 0
    left_out: frozenset[int] = frozenset()

    def sampler(self, repeats: int) -> Sampler:
        """The whole run's order of questions; each update's batch comes ``repeats`` times, as TRL's loader reads it."""
        train = self.config.train
        return CurriculumSampler(
            self.batch,
            train.updates,
            train.questions_per_update,
            train.candidates,
            repeats,
        )

    def batch(self, update: int) -> list[int]:
        """Indices of the questions of ``update``, one a group; a small bucket may give the same one twice."""
        return self.draws.batch(update)

    def job(self, index: int, update: int, candidate: int, repeat: int = 0) -> EpisodeJob:
        """The episode of question ``index`` and ``candidate`` in ``update``, its gate drawn.

        ``repeat``: how many groups of the update before this one have the same question.
        """
        seed = self.config.seed
        gated = gate(self.config, self.corpus, index, seed, update, candidate)
        return EpisodeJob(index, candidate, gated, (seed, update), repeat)

    def jobs(self, indices: Sequence[int], update: int, process: int) -> list[EpisodeJob]:
        """The episodes of ``process`` (its rank): ``indices`` is its slice of the update's batch, groups in a row.

        A group may begin on one process and end on the next: candidates are counted from the start of the batch.
        """
        first = process * len(indices)
        size = self.config.train.candidates
        batch = self.batch(update)
        repeats = [batch[:group].count(index) for group, index in enumerate(batch)]
        places = (divmod(first + position, size) for position in range(len(indices)))
        return [
            self.job(index, update, candidate, repeats[group] if batch[group] == index else 0)
            for index, (group, candidate) in zip(indices, places, strict=True)
        ]

    def bucket_name(self, index: int) -> str:
        """Name of the length bucket of question ``index``."""
        return self.draws.bucket_name(index)


def make_experiment(
    config: Config,
    folder: Path,
    corpus: PreparedCorpus,
    eligible: list[int],
    tokenizer: PreTrainedTokenizerBase,
    first_update: int = 0,
    left_out: frozenset[int] = frozenset(),
) -> Experiment:
    """Assemble the parts."""
    return Experiment(
        config=config,
        folder=folder,
        corpus=corpus,
        dataset=Dataset.from_dict({"prompt": [str(index) for index in range(len(corpus))]}),
        draws=RunDraws(config, corpus, eligible),
        settings=episode_settings(config, "sampled"),
        frame=chat_frame(tokenizer, config.model.enable_thinking),
        sampling=config.rollout.sampling(),
        pool=ThreadPoolExecutor(TOOL_THREADS, thread_name_prefix="tools"),
        first_update=first_update,
        left_out=left_out,
    )
