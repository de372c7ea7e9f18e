"""The reference anchor: the reference policy becomes a copy of the policy every so many updates, and survives a resume.

TRL rebuilds the reference from the model's id when a run resumes, so an anchored reference would be lost without a
word. Here every checkpoint holds it.
"""

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from transformers import TrainerCallback

FILE = "reference.safetensors"


class ReferenceAnchor(TrainerCallback):
    """Copies the policy into the reference every ``updates`` updates (card: 111), before the checkpoint is written."""

    def __init__(self, reference: torch.nn.Module, accelerator: Any, updates: int) -> None:
        self.reference, self.accelerator, self.updates = reference, accelerator, updates

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Called by the trainer after each update; ``state.global_step`` counts the completed ones."""
        if state.global_step % self.updates:
            return
        policy = self.accelerator.unwrap_model(kwargs["model"])
        copy_weights(policy, self.accelerator.unwrap_model(self.reference))


@torch.no_grad()
def copy_weights(source: torch.nn.Module, target: torch.nn.Module) -> None:
    """Copy every parameter of ``source`` into ``target``, which keeps its own number format."""
    for to, from_ in zip(target.parameters(), source.parameters(), strict=True):
        to.copy_(from_)


def save_reference(reference: torch.nn.Module, checkpoint: Path) -> None:
    """Write the reference policy's weights into ``checkpoint``; tied tensors are written once."""
    tensors, seen = {}, set()
    for name, parameter in reference.named_parameters():
        if parameter.data_ptr() not in seen:
            seen.add(parameter.data_ptr())
            tensors[name] = parameter.detach().contiguous()
    save_file(tensors, checkpoint / FILE)


def load_reference(reference: torch.nn.Module, checkpoint: Path) -> None:
    """Restore what ``save_reference`` wrote.

    Raises FileNotFoundError where the checkpoint holds no reference, ValueError where its tensors are not the
    model's: going on with the base model instead would change the experiment silently.
    """
    path = checkpoint / FILE
    if not path.exists():
        raise FileNotFoundError(f"{checkpoint} holds no {FILE}: it was not written by this project with train.beta > 0")
    tensors = load_file(path)
    parameters = dict(reference.named_parameters())
    if set(tensors) != set(parameters):
        odd = sorted(set(tensors) ^ set(parameters))[0]
        raise ValueError(
            f"{path} does not fit the model: {odd} is only on one side; resume with the model it was written from"
        )
    with torch.no_grad():
        for name, tensor in tensors.items():
            parameters[name].copy_(tensor)
