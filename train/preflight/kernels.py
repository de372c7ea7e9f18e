"""The kernels of gated delta net layers: they are there, in a version that is right, and compute what torch does.

Without them 18 of Qwen3.5-2B's 24 layers run through a loop of small operations, 20 times as slow. Versions of
flash-linear-attention before 0.5 compute wrong gradients on Hopper GPUs with Triton 3.4 to 3.7, in silence (its issue
640).
"""

import importlib
import inspect
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch
from packaging.version import Version

from sqale_grpo.env.errors import first_line
from sqale_grpo.train.preflight.table import CheckRow, failed, right

PACKAGES = {"flash-linear-attention": Version("0.5"), "causal-conv1d": Version("1.4")}
# Without build isolation: causal-conv1d would be built against another torch than the one that is there.
INSTALL = "pip install --no-build-isolation flash-linear-attention causal-conv1d"
MODULES = {"flash-linear-attention": "fla", "causal-conv1d": "causal_conv1d"}
LIMIT = 2e-2  # relative error of a gradient; bfloat16 rounds to 4e-3
TOKENS = 512
LINEAR = "linear_attention"


def text_config(policy: Any) -> Any:
    """The configuration of a policy's language model."""
    config = policy.config
    return config.get_text_config() if hasattr(config, "get_text_config") else config


def installed() -> dict[str, Version | None]:
    """The versions of ``PACKAGES``; None for one that is not there."""
    found: dict[str, Version | None] = {}
    for package in PACKAGES:
        try:
            found[package] = Version(version(package))
        except PackageNotFoundError:
            found[package] = None
    return found


def kernels_there(policy: Any, on_gpu: bool, found: dict[str, Version | None] | None = None) -> CheckRow:
    """Whether a policy with gated delta net layers has their kernels, in versions that are known to be right."""
    name = "kernels"
    if LINEAR not in (getattr(text_config(policy), "layer_types", None) or ()):
        return right(name, "the policy has no gated delta net layer")
    if not on_gpu:
        return CheckRow(name, "not made", "on a CPU torch's own path computes")
    found = installed() if found is None else found
    missing = [package for package, each in found.items() if each is None]
    if missing:
        return failed(name, f"{' and '.join(missing)} not installed: 20 times as slow without", INSTALL)
    old = [f"{package} {each}" for package, each in found.items() if each is not None and each < PACKAGES[package]]
    if old:
        return failed(name, f"{' and '.join(old)}: wrong gradients on Hopper, in silence", INSTALL)
    for package, module in MODULES.items():
        try:
            importlib.import_module(module)
        except Exception as error:  # of another Triton, CUDA or torch; the layers would take the slow path in silence
            return failed(name, f"{package} is installed and cannot be imported: {first_line(error)}", INSTALL)
    return right(name, ", ".join(f"{package} {each}" for package, each in found.items()))


def rules() -> tuple[Callable[..., Any], Callable[..., Any]]:
    """(what Qwen3.5's layers call for the gated delta rule, transformers' path in plain torch)."""
    from transformers.models.qwen3_5 import modeling_qwen3_5 as modeling

    plain = inspect.unwrap(modeling.torch_chunk_gated_delta_rule)
    # Releases before 5.20 choose between two names; later ones wrap the one.
    used = getattr(modeling, "chunk_gated_delta_rule", None) or modeling.torch_chunk_gated_delta_rule
    return used, plain


def kernel_gradients(policy: Any, device: torch.device, rule: Callable[..., Any] | None = None) -> CheckRow:
    """One layer's rule forward and backward: what the layers call, in bfloat16, against torch in float32.

    ``rule`` stands in for what the layers call.
    """
    name = "kernel gradients"
    config = text_config(policy)
    if LINEAR not in (getattr(config, "layer_types", None) or ()):
        return right(name, "the policy has no gated delta net layer")
    used, plain = rules()
    errors = gradient_errors(rule or used, plain, config, device)
    worst = max(errors, key=lambda each: errors[each])
    found = f"largest relative error {errors[worst]:.1e}, of {worst}, over {TOKENS} tokens"
    if not errors[worst] < LIMIT:  # NaN fails too
        wrong = ", ".join(f"{each} {error:.1e}" for each, error in errors.items() if not error < LIMIT)
        return failed(name, f"relative errors over {LIMIT:g}: {wrong}", f"{INSTALL}; see docs/performance.md")
    return right(name, found)


def gradient_errors(
    rule: Callable[..., Any], plain: Callable[..., Any], config: Any, device: torch.device
) -> dict[str, float]:
    """Relative errors (a norm over a norm) of the output and of the gradients of q, k, v, g and beta."""
    generator = torch.Generator().manual_seed(0)

    def drawn(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator)

    keys, values = config.linear_num_key_heads, config.linear_num_value_heads
    inputs = {
        "q": drawn(1, TOKENS, keys, config.linear_key_head_dim),
        "k": drawn(1, TOKENS, keys, config.linear_key_head_dim),
        "v": drawn(1, TOKENS, values, config.linear_value_head_dim),
        "g": -torch.nn.functional.softplus(drawn(1, TOKENS, values)) * 0.5,
        "beta": drawn(1, TOKENS, values).sigmoid(),
    }
    weight = drawn(1, TOKENS, values, config.linear_value_head_dim)

    def run(function: Callable[..., Any], dtype: torch.dtype) -> dict[str, torch.Tensor]:
        # g stays in float32, as the layer computes it.
        leaves = {
            each: value.bfloat16().to(device, torch.float32 if each == "g" else dtype).requires_grad_()
            for each, value in inputs.items()
        }
        q, k, v = leaves["q"], leaves["k"], leaves["v"]
        if values != keys:
            q, k = (each.repeat_interleave(values // keys, dim=2) for each in (q, k))
        output, _ = function(q, k, v, g=leaves["g"], beta=leaves["beta"], use_qk_l2norm_in_kernel=True)
        (output.float() * weight.to(device)).sum().backward()
        gradients = {f"d{each}": leaf.grad for each, leaf in leaves.items() if leaf.grad is not None}
        return {each: value.detach().float() for each, value in {"output": output, **gradients}.items()}

    ours, wanted = run(rule, torch.bfloat16), run(plain, torch.float32)
    return {each: ((ours[each] - value).norm() / value.norm()).item() for each, value in wanted.items()}
