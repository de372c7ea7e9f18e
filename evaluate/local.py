"""A model on this machine, held by transformers and decoded in lockstep."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
import transformers

from evaluate.backend import Backend, Failure
from evaluate.config import EvaluationConfig
from evaluate.records import TokenCounts, token_counts
from train.config import ModelConfig
from train.config_check import ConfigError
from train.policy_files import is_vision, load_policy, load_tokenizer
from train.rollout.chat import ChatFrame, chat_frame
from train.rollout.lockstep import play
from train.rollout.tokens import EpisodeTokens, Sampling
from train.rollout.update import OpenEpisode

PlayTokens = Callable[[Sequence[OpenEpisode], ThreadPoolExecutor], list[EpisodeTokens]]


class LocalBackend:
    """Plays all episodes of a chunk at once, token in, token out."""

    def __init__(self, play_tokens: PlayTokens, parameters: int, close: Callable[[], None] = lambda: None) -> None:
        """``parameters``: of the model; ``close`` gives back what ``play_tokens`` holds."""
        self.facts: dict[str, Any] = {"parameters": parameters}
        self._play, self._close = play_tokens, close

    def play(self, episodes: Sequence[OpenEpisode], pool: ThreadPoolExecutor) -> list[TokenCounts | Failure]:
        """Every episode to its end; a local model has no failures of its own."""
        return [token_counts(len(each.prompt_ids), each.env_mask) for each in self._play(episodes, pool)]

    def close(self) -> None:
        """Give the model back."""
        self._close()


def open_local(config: EvaluationConfig) -> Backend:
    """The model of ``config`` in memory."""
    transformers.utils.logging.disable_progress_bar()
    if config.local.threads:
        torch.set_num_threads(config.local.threads)
    frame = frame_of(config, config.model)
    return _open_transformers(config, frame)


def frame_of(config: EvaluationConfig, path: str) -> ChatFrame:
    """The chat frame of the tokenizer at ``path``; ConfigError where it has no fitting template."""
    try:
        return chat_frame(load_tokenizer(path), config.enable_thinking)
    except ValueError as error:
        raise ConfigError(str(error)) from error


def sampling_of(config: EvaluationConfig) -> Sampling:
    """How tokens are drawn, and how many."""
    section = config.sampling
    return Sampling(
        section.temperature, section.top_p, section.top_k, section.max_turn_tokens, section.max_episode_tokens
    )


def _open_transformers(config: EvaluationConfig, frame: ChatFrame) -> Backend:
    gpu = torch.cuda.is_available() and not config.local.use_cpu
    if not gpu:
        # "falling back to its reference PyTorch implementation": on a CPU there is no other.
        transformers.utils.logging.set_verbosity_error()
    model = load_policy(ModelConfig(path=config.model, weights_dtype=config.local.dtype), config.model).eval()
    if gpu:
        model = model.to("cuda")
    sampling = sampling_of(config)

    def play_tokens(episodes: Sequence[OpenEpisode], pool: ThreadPoolExecutor) -> list[EpisodeTokens]:
        keys = [each.key for each in episodes]
        return play(model, frame, [each.episode for each in episodes], keys, sampling, pool)

    return LocalBackend(play_tokens, count_parameters(model))


def count_parameters(model: torch.nn.Module) -> int:
    """Parameters that take part in a text: all but a vision tower's. Tied ones count once."""
    return sum(weights.numel() for name, weights in model.named_parameters() if not is_vision(name))
