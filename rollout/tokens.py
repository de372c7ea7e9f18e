"""An episode as tokens: what TRL takes from a rollout, and what a rollout cost."""

from dataclasses import dataclass, field


@dataclass
class EpisodeTokens:
    """One episode as tokens: what TRL takes from a rollout.

    ``env_mask`` is TRL's name for what the policy wrote: 1 for its tokens, the only ones that are trained; 0 for what
    the environment wrote (tool text and chat frame), where the log-probability is 0.
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
