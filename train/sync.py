"""Giving vLLM the trainer's weights before each rollout, and the arguments that TRL's engine is made with.

TRL merges LoRA adapters into the base weights for the transfer and takes them out again. Where those are in 16 bits,
each round trip moves the frozen base a little: over a run's 1,800 transfers by 10 to 40% of its norm (measured), in no
checkpoint, and unseen by the KL term, whose reference shares the base. Here a copy of each weight gets its adapter.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any

import torch
import trl.generation.vllm_generation as generation
from peft import PeftModel
from peft.tuners.lora import LoraLayer
from torch.distributed.tensor import DTensor

from sqale_grpo.env.chance import key_int
from sqale_grpo.rollout.http import ServerError
from sqale_grpo.rollout.requests import EngineLost
from sqale_grpo.train.anchor import POLICY_ADAPTER
from sqale_grpo.train.sharded import gathered

BASE = ".base_layer"  # what PEFT puts between a module's name and its frozen weight
WRAPPERS = ("base_model.model.", "_checkpoint_wrapped_module.")


@torch.no_grad()
def merged_weights(policy: PeftModel) -> Iterator[tuple[str, torch.Tensor]]:
    """Every weight of a policy with LoRA adapters, by the name that it has without them, the adapter added to a copy.

    The sum is made in float32 and rounded once, to the base weight's format. All processes walk together: each weight
    may have to be gathered. One is whole at a time.
    """
    adapted = {f"{name}{BASE}.weight": each for name, each in policy.named_modules() if isinstance(each, LoraLayer)}
    for name, parameter in policy.named_parameters():
        if policy.prefix in name:
            continue
        plain = name.replace(BASE, "")
        for wrapper in WRAPPERS:
            plain = plain.replace(wrapper, "")
        with gathered(parameter):
            if name not in adapted:
                yield plain, _whole(parameter)
                continue
            layer = adapted[name]
            first, second = layer.lora_A[POLICY_ADAPTER].weight, layer.lora_B[POLICY_ADAPTER].weight
            with gathered(first), gathered(second):
                change = (_whole(second).float() @ _whole(first).float()) * layer.scaling[POLICY_ADAPTER]
            whole = _whole(parameter)
            yield plain, (whole.float() + change).to(whole.dtype)


def _whole(parameter: torch.Tensor) -> torch.Tensor:
    return parameter.full_tensor() if isinstance(parameter, DTensor) else parameter.data


def leave_the_base_alone(trainer: Any) -> None:
    """Have TRL send ``merged_weights`` where the policy has adapters."""
    engine = trainer.vllm_generation
    if isinstance(engine.model, PeftModel):
        engine._iter_named_params = lambda: merged_weights(engine.model)


def send_weights(trainer: Any) -> None:
    """Give vLLM the trainer's weights and empty its prefix cache. All processes call it.

    ServerError where its server cannot be reached; EngineLost where a colocated engine keeps keys and values that were
    computed with other weights.
    """
    try:
        trainer.vllm_generation.sync_weights()
    except OSError as error:  # of which the errors of TRL's client are
        if trainer.vllm_mode != "server":
            raise
        raise ServerError(f"the weights could not be sent: {error}") from error
    # TRL asks too and drops the answer: False where requests still hold blocks.
    if trainer.vllm_mode == "colocate" and trainer.vllm_generation.llm.reset_prefix_cache() is False:
        raise EngineLost(
            "vLLM did not empty its prefix cache after it got new weights: requests still hold parts of it"
        )


def engine_facts(llm: Any) -> str:
    """What decides how a colocated engine computes, as it was made."""
    config = llm.llm_engine.vllm_config
    runner = getattr(config, "use_v2_model_runner", None)
    named = "unknown" if runner is None else "V2" if runner else "V1"
    caching = "on" if config.cache_config.enable_prefix_caching else "off"
    return (
        f"vLLM {version('vllm')}: model runner {named}, prefix caching {caching}, seed {config.model_config.seed}, "
        f"{config.model_config.dtype}"
    )


def engine_seed(seed: int, first_update: int, process: int) -> int:
    """vLLM's seed: of the run's, of the update at which this start of it begins, and of the process."""
    return key_int("vllm", seed, first_update, process) % 2**31


@contextmanager
def engine_arguments(**arguments: Any) -> Iterator[None]:
    """Inside, TRL makes its colocated engine with ``arguments`` in place of its own, which no option of its reaches.

    Its seed is the process's rank, so that every run would sample with the same stream; whether prefixes are cached is
    left to vLLM, whose default for this architecture changed between two versions.
    """
    made = getattr(generation, "LLM", None)
    if made is None:  # no vLLM: TRL says so
        yield
        return
    generation.LLM = lambda **theirs: made(**{**theirs, **arguments})
    try:
        yield
    finally:
        generation.LLM = made
