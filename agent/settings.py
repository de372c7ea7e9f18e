"""What a checkpoint's episodes are bounded by: the environment of its training, the sampling of its evaluation."""

from dataclasses import dataclass

from sqale_grpo.env.limits import Limits
from sqale_grpo.env.tools import EpisodeLimits
from sqale_grpo.rollout.text_frame import TextFrame
from sqale_grpo.settings.sampling import Sampling


@dataclass(frozen=True)
class Settings:
    """Turns and tool results, bounds of a query, how tokens are drawn, and whether a turn opens with ``<think>``.

    ``frame``: the model's chat template as text, for the raw prompt of a server; None where the model is not known.
    ``sure``: the share of several candidates that must agree, as an evaluation calibrated it; None where none did.
    """

    episode: EpisodeLimits
    query: Limits
    sampling: Sampling
    enable_thinking: bool
    frame: TextFrame | None = None
    sure: float | None = None


# The recipe's; an export writes those of its own run here.
SETTINGS = Settings(EpisodeLimits(), Limits(seconds=30.0), Sampling(0.6, 0.95, 20), True)
