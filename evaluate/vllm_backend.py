"""A model on this machine in vLLM, which takes every turn as it comes. Needs the extra ``vllm``."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from evaluate.backend import Backend
from evaluate.config import EvaluationConfig
from evaluate.local import LocalBackend, count_parameters, frame_of, sampling_of
from train.config_check import ConfigError
from train.policy_path import is_adapter
from train.rollout.requests import play_requests
from train.rollout.tokens import EpisodeTokens
from train.rollout.update import OpenEpisode


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
    from train.rollout.vllm_engine import VllmEngine, load_vllm

    frame, sampling, local = frame_of(config, config.model), sampling_of(config), config.local
    llm = load_vllm(config.model, sampling.max_episode_tokens, local.vllm_memory_share, config.batch, local.vllm_seeded)

    def play_tokens(episodes: Sequence[OpenEpisode], pool: ThreadPoolExecutor) -> list[EpisodeTokens]:
        keys = [each.key for each in episodes]
        with VllmEngine(llm, sampling, frame.stop_ids, local.vllm_seeded) as engine:
            return play_requests(engine, frame, [each.episode for each in episodes], keys, sampling, pool)

    return LocalBackend(play_tokens, parameters_of(config.model))


def parameters_of(path: str) -> int:
    """Parameters of the language model at ``path``, counted from its configuration; no weight is read."""
    config = AutoConfig.from_pretrained(path)
    with torch.device("meta"):
        return count_parameters(AutoModelForCausalLM.from_config(getattr(config, "text_config", config)))
