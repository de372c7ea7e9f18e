"""An episode as tokens: what TRL takes from a rollout, and what a rollout cost."""

import math
from dataclasses import dataclass, field

from sqale_grpo.env.errors import UserError


class NoProbability(UserError):
    """A token was sampled and has no probability: logits that are no numbers, in the policy or in its engine."""

    exit_status = 1


def check_probability(token: int, logprob: float | None, position: int) -> None:
    """NoProbability where a sampled ``token``'s log-probability is missing, no number or infinite.

    The loss would count such a token as one on which sampler and trainer agree, and nothing would show that the engine
    writes at random. ``position``: tokens of the episode before it.
    """
    if logprob is None or not math.isfinite(logprob):
        raise NoProbability(
            f"token {token}, sampled after {position} tokens of its episode, has the log-probability {logprob}: what "
            "generates computes no numbers any more. Its weights or its kernels are broken; "
            "`sqale-grpo train ... --preflight` says which"
        )


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
