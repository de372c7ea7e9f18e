"""Loading policies from disk, each in the class that it was saved from, and knowing which part of them trains."""

from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from sqale_grpo.env.errors import first_line
from sqale_grpo.rollout.policy_path import ADAPTER_FILE, is_adapter, resolve_policy
from sqale_grpo.settings.check import ConfigError
from sqale_grpo.settings.keys import ModelConfig

__all__ = ["load_policy", "load_tokenizer", "resolve_policy"]


def load_policy(model: ModelConfig, path: str | Path) -> PreTrainedModel:
    """The policy at ``path`` (as ``resolve_policy`` returns it), its weights in ``model.weights_dtype``.

    A checkpoint of a vision-language class is loaded as that class, so that it can be saved as it came; with
    ``model.freeze_vision`` only its language model trains. Adapters are merged into their base, in float32. Tensors
    that transformers does not know (``mtp.*``) are left out: an export takes them from the initial policy's folder.
    ConfigError where nothing can be loaded.
    """
    dtype = getattr(torch, model.weights_dtype)
    adapters = is_adapter(path)
    base = adapter_base(path) if adapters else str(path)
    try:
        policy = _model_class(base).from_pretrained(base, dtype=torch.float32 if adapters else dtype)
    except (OSError, ValueError) as error:
        raise cannot_load(path, error) from error
    if adapters:
        from peft import PeftModel

        policy = PeftModel.from_pretrained(policy, str(path)).merge_and_unload().to(dtype)
    if model.freeze_vision:
        freeze_vision(policy)
    return policy


def load_tokenizer(path: str | Path) -> PreTrainedTokenizerBase:
    """The tokenizer of the policy at ``path``; ConfigError where there is none."""
    try:
        return AutoTokenizer.from_pretrained(str(path))
    except (OSError, ValueError) as error:
        raise cannot_load(path, error) from error


def cannot_load(path: str | Path, error: Exception) -> ConfigError:
    """What to say where transformers cannot read a policy."""
    return ConfigError(
        f"model.path={path} cannot be loaded ({first_line(error)}); name a folder, or a model on the Hub "
        "that this machine can reach"
    )


def freeze_vision(policy: torch.nn.Module) -> None:
    """Train the language model alone, where there is anything beside it."""
    for name, parameter in policy.named_parameters():
        if is_vision(name):
            parameter.requires_grad_(False)


def is_vision(name: str) -> bool:
    """Whether a parameter's dotted name lies in the vision tower (``model.visual.…`` in Qwen3.5)."""
    return bool({"visual", "vision_tower", "vision_model"} & set(name.split(".")))


def adapter_base(path: str | Path) -> str:
    """Folder or Hub name of the model that the adapters in ``path`` belong to."""
    from peft import PeftConfig

    base = PeftConfig.from_pretrained(str(path)).base_model_name_or_path
    if not base:
        raise ConfigError(f"{Path(path) / ADAPTER_FILE} names no base_model_name_or_path; add the base model's folder")
    return base


def _model_class(path: str) -> Any:
    """The class to load: the saved one where it is a vision-language model, else the causal language model's."""
    name = (AutoConfig.from_pretrained(path).architectures or [""])[0]
    if name.endswith("ForConditionalGeneration"):
        return getattr(transformers, name, AutoModelForCausalLM)
    return AutoModelForCausalLM
