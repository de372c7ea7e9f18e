"""The draws of a run from its configuration, and the prepared folder that holds no other questions.

``sqale-grpo corpus prepare --for CONFIG...`` makes that folder; a run takes it where its corpus is not prepared whole.
"""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

from sqale_grpo.corpus import PreparedCorpus
from sqale_grpo.corpus.draws import DrawPlan, Draws, by_row
from sqale_grpo.settings.keys import Config


def draw_plan(config: Config) -> DrawPlan:
    """What decides the questions of a run."""
    corpus, curriculum = config.corpus, config.curriculum
    return DrawPlan(
        seed=config.seed,
        updates=config.train.updates,
        batch=config.train.questions_per_update,
        schedule=curriculum.schedule(),
        percentiles=tuple(curriculum.percentiles),
        difficulties=tuple(sorted(corpus.difficulties)),
        include_unstable=corpus.include_unstable,
        most_luck=corpus.max_luck,
        copies=config.reward.counter_databases,
    )


def drawn_folder(whole: Path, config: Config) -> Path:
    """Where the questions of this run alone lie, beside ``whole``, the folder of the whole corpus."""
    plan = json.dumps(draw_plan(config).key(), sort_keys=True)
    return whole.with_name(f"{whole.name}-drawn-{hashlib.blake2b(plan.encode(), digest_size=4).hexdigest()}")


class RunDraws:
    """The batches of a run, as numbers of questions of its prepared corpus, of which ``eligible`` may come."""

    def __init__(self, config: Config, corpus: PreparedCorpus, eligible: Sequence[int]) -> None:
        measured = corpus.measured()
        draws = Draws(draw_plan(config), measured)
        self._rows = [measured.rows[each] for each in draws.measured]
        self._places = by_row(self._rows)
        self._buckets = draws.buckets
        self.curriculum = draws.curriculum({self._places[row] for row in eligible})

    def batch(self, update: int) -> list[int]:
        """The questions of ``update``, one a group; a small bucket may give the same one twice."""
        return [self._rows[place] for place in self.curriculum.batch(update)]

    def bucket_name(self, index: int) -> str:
        """Name of the length bucket of question ``index``."""
        return self._buckets.names[self._buckets.bucket_of[self._places[index]]]
