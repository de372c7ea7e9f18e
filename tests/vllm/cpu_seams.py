"""What vLLM's CPU build needs so that weights can be loaded into a running engine; a GPU needs none of it.

The CPU build packs the weights of linear layers for its kernels when a model is loaded, and cannot load others after
that. Here they stay as they are. Works for engines in this process; a server's workers import this module through
``tests.vllm.server_extension``.
"""

import functools
import os

os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")  # GiB; else most of the memory
os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")  # compiling takes longer than these tests
os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")  # pinned to a core, two processes fight for it
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch.nn.functional as F
import vllm._custom_ops as ops
import vllm.model_executor.layers.utils as layers
from vllm import LLM


def _leave_unpacked(layer, remove_weight):
    if layer.weight.is_meta or layer.weight.ndim == 2:
        layer.cpu_linear = F.linear  # as vLLM does where it is told to skip the packing


def _with_plain_weight(function):
    """The delta net's convolution takes its weight as (channels, width) or packed; here it is (channels, 1, width)."""

    def call(*args, weight, is_vnni, **more):
        return function(*args, weight=weight.flatten(1), is_vnni=False, **more)

    return call


def install() -> None:
    """Keep weights unpacked in this process from now on."""
    if layers.dispatch_cpu_unquantized_gemm is _leave_unpacked:
        return
    # TORCHDYNAMO_DISABLE alone is refused, and TRL passes no enforce_eager on.
    LLM.__init__ = functools.partialmethod(LLM.__init__, enforce_eager=True)
    layers.dispatch_cpu_unquantized_gemm = _leave_unpacked
    ops.causal_conv1d_fwd_cpu = _with_plain_weight(ops.causal_conv1d_fwd_cpu)
    ops.causal_conv1d_update_cpu = _with_plain_weight(ops.causal_conv1d_update_cpu)
