"""A model on this machine, held by transformers and decoded in lockstep.

A model on this machine in vLLM, which takes every turn as it comes. Needs the extra ``vllm``.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from typing import Any

import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM

from sqale_grpo.evaluate.backend import Backend, Failure
from sqale_grpo.evaluate.records import TokenCounts, token_counts
from sqale_grpo.rollout.chat import ChatFrame, chat_frame
from sqale_grpo.rollout.lockstep import play
from sqale_grpo.rollout.policy import is_vision, load_policy, load_tokenizer
from sqale_grpo.rollout.policy_path import is_adapter
from sqale_grpo.rollout.requests import play_requests
from sqale_grpo.rollout.tokens import EpisodeTokens
from sqale_grpo.rollout.world import World
from sqale_grpo.settings.check import ConfigError
from sqale_grpo.settings.evaluation import EvaluationConfig
from sqale_grpo.settings.keys import ModelConfig

PlayTokens = Callable[[Sequence[World], ThreadPoolExecutor], list[EpisodeTokens]]


class LocalBackend:
    """Plays all episodes of a chunk at once, token in, token out."""

    def __init__(self, play_tokens: PlayTokens, parameters: int, close: Callable[[], None] = lambda: None) -> None:
        """``parameters``: of the model; ``close`` gives back what ``play_tokens`` holds."""
        self.facts: dict[str, Any] = {"parameters": parameters}
        self._play, self._close = play_tokens, close

    def play(self, episodes: Sequence[World], pool: ThreadPoolExecutor) -> list[TokenCounts | Failure]:
        """Every episode to its end; a local model has no failures of its own."""
        return [token_counts(len(each.prompt_ids), each.env_mask) for each in self._play(episodes, pool)]

    def remarks(self) -> list[str]:
        """Nothing: a model in memory is asked as the protocol says."""
        return []

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


def _open_transformers(config: EvaluationConfig, frame: ChatFrame) -> Backend:
    gpu = torch.cuda.is_available() and not config.local.use_cpu
    if not gpu:
        # "falling back to its reference PyTorch implementation": on a CPU there is no other.
        transformers.utils.logging.set_verbosity_error()
    model = load_policy(ModelConfig(path=config.model, weights_dtype=config.local.dtype), config.model).eval()
    if gpu:
        model = model.to("cuda")
    sampling = config.sampling.sampling()

    def play_tokens(episodes: Sequence[World], pool: ThreadPoolExecutor) -> list[EpisodeTokens]:
        keys = [each.key for each in episodes]
        return play(model, frame, [each.episode for each in episodes], keys, sampling, pool)

    return LocalBackend(play_tokens, count_parameters(model))


def count_parameters(model: torch.nn.Module) -> int:
    """Parameters that take part in a text: all but a vision tower's. Tied ones count once."""
    return sum(weights.numel() for name, weights in model.named_parameters() if not is_vision(name))


def open_vllm(config: EvaluationConfig) -> Backend:
    """The model of ``config`` in an engine of this process. ConfigError where it cannot be there."""
    if find_spec("vllm") is None:
        raise ConfigError(
            "backend=vllm needs vLLM, which is not installed; install the extra vllm in an environment of its own, or "
            "set backend=transformers"
        )
    if is_adapter(config.model):
        raise ConfigError(f"{config.model} holds LoRA adapters: set backend=transformers, which merges them")
    # Late: importing vLLM takes seconds.
    from sqale_grpo.rollout.vllm_engine import VllmEngine, load_vllm

    frame, sampling, local = frame_of(config, config.model), config.sampling.sampling(), config.local
    llm = load_vllm(config.model, sampling.max_episode_tokens, local.vllm_memory_share, config.batch, local.vllm_seeded)

    def play_tokens(episodes: Sequence[World], pool: ThreadPoolExecutor) -> list[EpisodeTokens]:
        keys = [each.key for each in episodes]
        with VllmEngine(llm, sampling, frame.stop_ids, local.vllm_seeded) as engine:
            return play_requests(engine, frame, [each.episode for each in episodes], keys, sampling, pool)

    return LocalBackend(play_tokens, parameters_of(config.model))


def parameters_of(path: str) -> int:
    """Parameters of the language model at ``path``, counted from its configuration; no weight is read."""
    config = AutoConfig.from_pretrained(path)
    with torch.device("meta"):
        return count_parameters(AutoModelForCausalLM.from_config(getattr(config, "text_config", config)))
