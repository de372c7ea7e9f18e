"""How tokens are drawn, and how many: what every backend and the agent take."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Sampling:
    """How tokens are drawn, and how many (counts are tokens; ``top_k`` 0 and ``top_p`` 1 switch the truncation off).

    ``temperature`` 0 takes the most likely token.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    max_turn_tokens: int = 2048
    max_episode_tokens: int = 12_288
