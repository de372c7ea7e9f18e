"""The published training curve of the paper's run, as levels over spans of updates; nobody has published its points.

Source: the authors' project page (SQaLe run, logged every 6 updates up to update 1,658). A span without a published
end is drawn to that last logged update, which is our reading.
"""

from dataclasses import dataclass

from train.config import Config

LAST = 1_658


@dataclass(frozen=True)
class Level:
    """A published mean of ``metric`` over the updates ``start`` … ``end``; ``high`` where a range was published."""

    metric: str
    start: int
    end: int
    low: float
    high: float | None = None


LEVELS = (
    Level("invalid", 0, 30, 0.43),
    Level("equivalent", 0, 30, 0.12),
    Level("invalid", LAST - 200, LAST, 0.01),  # "under 1%"
    Level("equivalent", LAST - 200, LAST, 0.45),
    Level("rounds", 0, LAST, 5.6, 6.8),
    Level("calls", 0, 800, 6.0),
    Level("calls", 1_300, LAST, 19.3),
)


def is_papers_run(config: Config | None) -> bool:
    """Whether a run has the model, the data, the batch and the length of the paper's SQaLe run."""
    if config is None:
        return False
    train = config.train
    return (
        config.model.path.rstrip("/").endswith("Qwen3.5-2B")
        and config.corpus.name == "sqale"
        and (train.questions_per_update, train.candidates, train.max_steps) == (18, 8, 1_800)
        and config.curriculum.strength == 1.0
    )
