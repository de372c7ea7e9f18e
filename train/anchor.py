"""The reference anchor: the reference policy becomes a copy of the policy every so many updates, and survives a resume.

TRL rebuilds the reference from the model's id when a run resumes, so an anchored reference would be lost without a
word, and refuses to anchor one under LoRA. Here every checkpoint holds it: as a file of its own, or, under LoRA, as the
adapter ``ref`` beside the policy's.

LoRA: small trained adapters beside frozen weights, with a second, frozen set of them as the reference policy.
"""

from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors import safe_open
from safetensors.torch import save_file
from transformers import PreTrainedModel, TrainerCallback

from sqale_grpo.rollout.policy import is_vision
from sqale_grpo.settings.check import ConfigError
from sqale_grpo.settings.keys import Config
from sqale_grpo.train.sharded import copy_value, reshard, set_value, whole_value

POLICY_ADAPTER, REFERENCE_ADAPTER = "default", "ref"  # PEFT's name of the first one, TRL's of the reference's
VISION = r".*\.(visual|vision_tower|vision_model)\..*"  # leaves as it came: only the language model trains


def with_adapters(policy: PreTrainedModel, config: Config) -> PreTrainedModel | PeftModel:
    """The policy with fresh adapters of ``model.lora_rank`` on ``model.lora_targets``; itself where the rank is 0.

    Adapters begin as the identity and are kept in float32. The same seed gives the same ones on every process. No
    dropout: the rollout's probabilities must be the trainer's. ConfigError where the policy has no such module.
    """
    model = config.model
    if not model.lora_rank:
        return policy
    lora = LoraConfig(
        r=model.lora_rank,
        lora_alpha=model.lora_alpha,
        target_modules=list(model.lora_targets),
        # Where there is no vision tower PEFT would warn that nothing was excluded.
        exclude_modules=VISION if any(map(is_vision, dict(policy.named_modules()))) else None,
        lora_dropout=0.0,
        task_type="CAUSAL_LM",
    )
    torch.manual_seed(config.seed)
    try:
        return get_peft_model(policy, lora)
    except ValueError as error:
        raise ConfigError(
            f"model.lora_targets={list(model.lora_targets)} fits no module of {type(policy).__name__}; name parts of "
            "its layers, such as q_proj"
        ) from error


FILE = "reference.safetensors"


class ReferenceAnchor(TrainerCallback):
    """Copies the policy into the reference every ``updates`` updates (card: 111), before the checkpoint is written.

    ``reference`` is the reference model, or None under LoRA, where it is an adapter of the policy.
    """

    def __init__(self, reference: torch.nn.Module | None, accelerator: Any, updates: int) -> None:
        self.reference, self.accelerator, self.updates = reference, accelerator, updates

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Called by the trainer after each update; ``state.global_step`` counts the completed ones."""
        if state.global_step % self.updates:
            return
        policy = self.accelerator.unwrap_model(kwargs["model"])
        if self.reference is None:
            copy_adapter(policy)
        else:
            copy_weights(policy, self.accelerator.unwrap_model(self.reference))


def copy_weights(source: torch.nn.Module, target: torch.nn.Module) -> None:
    """Copy every parameter of ``source`` into ``target``, which keeps its own number format."""
    for model in (source, target):
        reshard(model)
    for to, from_ in zip(target.parameters(), source.parameters(), strict=True):
        copy_value(to, from_)


def copy_adapter(policy: torch.nn.Module) -> None:
    """Copy the policy's LoRA adapter into the reference's, in one model."""
    reshard(policy)
    parameters = dict(policy.named_parameters())
    mine, other = f".{POLICY_ADAPTER}.", f".{REFERENCE_ADAPTER}."
    for name, parameter in parameters.items():
        if mine in name:
            copy_value(parameters[name.replace(mine, other)], parameter)


def save_reference(reference: torch.nn.Module, checkpoint: Path, is_main: bool) -> None:
    """Write the reference policy's weights into ``checkpoint``; all processes call it, ``is_main`` writes.

    Tied tensors are written once.
    """
    reshard(reference)
    tensors = {}
    for name, parameter in reference.named_parameters():
        value = whole_value(parameter)
        if is_main:
            tensors[name] = value
    if is_main:
        save_file(tensors, checkpoint / FILE)


def load_reference(reference: torch.nn.Module, checkpoint: Path) -> None:
    """Restore what ``save_reference`` wrote; every process reads the file.

    Raises FileNotFoundError where the checkpoint holds no reference, ValueError where its tensors are not the
    model's: going on with the base model instead would change the experiment silently.
    """
    path = checkpoint / FILE
    if not path.exists():
        raise FileNotFoundError(f"{checkpoint} holds no {FILE}: it was not written by this project with train.beta > 0")
    reshard(reference)
    parameters = dict(reference.named_parameters())
    with safe_open(path, framework="pt") as tensors:
        odd = sorted(set(tensors.keys()) ^ set(parameters))
        if odd:
            raise ValueError(
                f"{path} does not fit the model: {odd[0]} is only on one side; resume with the model that it was "
                "written from"
            )
        for name, parameter in parameters.items():
            set_value(parameter, tensors.get_tensor(name))


def check_reference_adapter(checkpoint: Path) -> None:
    """FileNotFoundError where a LoRA checkpoint lacks the reference's adapter: going on would begin it anew."""
    if not (checkpoint / REFERENCE_ADAPTER / "adapter_model.safetensors").exists():
        raise FileNotFoundError(
            f"{checkpoint} holds no adapter {REFERENCE_ADAPTER!r}: it was not written by this project with "
            "train.beta > 0"
        )
