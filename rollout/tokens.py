"""An episode as tokens: what is sampled and how much of it, what TRL takes from a rollout, what a rollout cost."""

from dataclasses import dataclass, field


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


@dataclass
class EpisodeTokens:
    """One episode as tokens: what TRL takes from a rollout.

    ``env_mask`` is 1 where the policy wrote the token, 0 for tool text and chat frame, where the log-probability is 0.
    """

    prompt_ids: list[int]
    completion_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    env_mask: list[int] = field(default_factory=list)

    def append(self, token: int, logprob: float = 0.0, written: int = 0) -> None:
        """Add one token to the completion."""
        self.completion_ids.append(token)
        self.logprobs.append(logprob)
        self.env_mask.append(written)

    def __len__(self) -> int:
        return len(self.prompt_ids) + len(self.completion_ids)


@dataclass
class RolloutStats:
    """What a rollout cost: forward passes of a lockstep batch, seconds spent waiting for tools alone, and in all."""

    decode_steps: int = 0
    tool_seconds: float = 0.0
    seconds: float = 0.0
