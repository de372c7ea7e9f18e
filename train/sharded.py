"""Weights wherever a launch keeps them: whole on every process, or sharded by ZeRO-3 or FSDP2.

All processes call these functions together, in the same order of parameters: each may gather shards. One parameter
is whole at a time, so that no second copy of a model ever stands on a GPU.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor, distribute_tensor


@contextmanager
def gathered(parameter: torch.Tensor, change: bool = False) -> Iterator[None]:
    """Inside, a parameter that ZeRO-3 has sharded holds all its values; with ``change`` what is written stays."""
    if not hasattr(parameter, "ds_id"):
        yield
        return
    import deepspeed

    with deepspeed.zero.GatheredParameters([parameter], modifier_rank=0 if change else None):
        yield


def reshard(model: torch.nn.Module) -> None:
    """Let FSDP2 parameters be their shards again: after a forward pass a root module's may still be whole."""
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.reshard()


@contextmanager
def unsharded(model: torch.nn.Module) -> Iterator[None]:
    """Inside, FSDP2 modules keep all their weights, so that processes may make unequal numbers of forward passes.

    An episode ends when it ends, and with shards every pass would wait for all processes: a deadlock.
    """
    modules = [module for module in model.modules() if isinstance(module, FSDPModule)]
    for module in modules:
        module.set_reshard_after_forward(False, recurse=False)
        module.unshard()
    try:
        yield
    finally:
        for module in modules:
            module.set_reshard_after_forward(True, recurse=False)
            module.reshard()


@torch.no_grad()
def whole_value(parameter: torch.Tensor) -> torch.Tensor:
    """A copy of all of the parameter's values on the CPU."""
    with gathered(parameter):
        value = parameter.full_tensor() if isinstance(parameter, DTensor) else parameter.detach()
        return value.to("cpu", copy=True).contiguous()


@torch.no_grad()
def set_value(parameter: torch.Tensor, value: torch.Tensor) -> None:
    """Give the parameter the whole ``value``, which every process holds; it keeps its own number format."""
    if isinstance(parameter, DTensor):
        value = value.to(parameter.device, parameter.dtype)
        value = distribute_tensor(value, parameter.device_mesh, parameter.placements)
    with gathered(parameter, change=True):
        parameter.copy_(value)


@torch.no_grad()
def copy_value(target: torch.Tensor, source: torch.Tensor) -> None:
    """Copy ``source`` into ``target``, which is sharded in the same way and keeps its own number format."""
    with gathered(source), gathered(target, change=True):
        target.copy_(source)
