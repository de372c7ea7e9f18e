"""What writes the policy's turns here: vLLM or transformers, each as a function that plays episodes to their end."""

import os
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from typing import Any

from sqale_grpo.agent.settings import SETTINGS
from sqale_grpo.env.episode import Episode
from sqale_grpo.env.errors import UserError, first_line
from sqale_grpo.rollout.chat import ChatFrame, chat_frame
from sqale_grpo.rollout.requests import play_requests
from sqale_grpo.rollout.tokens import EpisodeTokens
from sqale_grpo.settings.sampling import Sampling

# Plays episodes to their end; the integers fix each one's token sampling where the backend can be told.
Generate = Callable[[Sequence[Episode], Sequence[int], Sampling, ThreadPoolExecutor], list[EpisodeTokens]]


class AgentError(UserError):
    """What keeps the agent from starting, in one sentence for its user."""


def vllm_generate(
    model: str | Path,
    enable_thinking: bool = SETTINGS.enable_thinking,
    max_episode_tokens: int = SETTINGS.sampling.max_episode_tokens,
    memory_share: float = 0.9,
) -> tuple[Generate, ChatFrame]:
    """Load ``model`` (folder or Hub name) with vLLM: what ``SQaLeAgent`` takes.

    ``max_episode_tokens``: the longest context; ``memory_share``: of the GPU. Turns are written as they come, so that
    no episode waits for another; a draw depends on what else is in flight, not on the episode's key. Raises AgentError
    where vLLM is missing or cannot load the model.
    """
    need("vllm")
    model = check_model(model)
    # Its log would stand between the answers.
    os.environ.setdefault("VLLM_LOGGING_STREAM", "ext://sys.stderr")
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
    from transformers import AutoTokenizer

    from sqale_grpo.rollout.vllm_engine import VllmEngine, load_vllm

    try:
        frame = chat_frame(AutoTokenizer.from_pretrained(model), enable_thinking)
        llm = load_vllm(model, max_episode_tokens, memory_share)
    except Exception as error:  # a file that is damaged makes its parser raise whatever it likes
        raise AgentError(f"vLLM cannot load the model {model}: {first_line(error)}") from error

    lock = Lock()  # questions of several threads wait for each other

    def generate(
        episodes: Sequence[Episode], keys: Sequence[int], sampling: Sampling, pool: ThreadPoolExecutor
    ) -> list[EpisodeTokens]:
        with lock, VllmEngine(llm, sampling, frame.stop_ids) as engine:
            return play_requests(engine, frame, episodes, keys, sampling, pool)

    return generate, frame


def transformers_generate(
    model: str | Path, enable_thinking: bool = SETTINGS.enable_thinking, **options: Any
) -> tuple[Generate, ChatFrame]:
    """Load ``model`` (folder or Hub name) with transformers: what ``SQaLeAgent`` takes.

    ``options`` go to ``from_pretrained``; by default the checkpoint's number format, on a GPU where there is one.
    Raises AgentError where torch or transformers is missing or there is no such model.
    """
    need("torch", "transformers")
    model = check_model(model)
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging

    from sqale_grpo.rollout.lockstep import play

    logging.set_verbosity_error()  # e.g. that a CPU has no fast kernels
    if not sys.stderr.isatty():
        logging.disable_progress_bar()
    try:
        frame = chat_frame(AutoTokenizer.from_pretrained(model), enable_thinking)
        options = {"dtype": "auto", **options, "output_loading_info": True}
        policy, loading = AutoModelForCausalLM.from_pretrained(model, **options)
        if "device_map" not in options and torch.cuda.is_available():
            policy.to("cuda")
    except Exception as error:  # a file that is damaged makes its parser raise whatever it likes
        raise AgentError(f"the model {model} cannot be loaded: {first_line(error)}") from error
    if missing := sorted(loading["missing_keys"]):  # transformers would go on with random numbers in their places
        raise AgentError(f"the model {model} cannot be loaded: its files lack {missing[0]}")

    lock = Lock()  # questions of several threads wait for each other

    def generate(
        episodes: Sequence[Episode], keys: Sequence[int], sampling: Sampling, pool: ThreadPoolExecutor
    ) -> list[EpisodeTokens]:
        with lock:
            return play(policy, frame, episodes, keys, sampling, pool)

    return generate, frame


def need(*packages: str) -> None:
    """AgentError where one of the packages is not installed."""
    missing = [package for package in packages if find_spec(package) is None]
    if missing:
        raise AgentError(
            f"this backend needs {' and '.join(missing)}, which this Python ({sys.executable}) does not have: "
            f"pip install {' '.join(missing)}, or choose another one with --backend"
        )


def check_model(model: str | Path) -> str:
    """``model`` as loaders take it. AgentError where it is written as a folder and is none, or holds no checkpoint."""
    text = str(model)
    folder = Path(text).expanduser()
    if text and folder.is_dir():
        if not (folder / "config.json").is_file():
            raise AgentError(f"the folder {text} holds no model: there is no config.json in it")
        return str(folder)
    if not text or folder.exists() or text.startswith((".", "/", "~")) or text.count("/") > 1:
        raise AgentError(f"no model at {text!r}: name a folder that holds one, or a model on the Hub as OWNER/NAME")
    return text
