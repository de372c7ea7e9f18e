"""Memory: a pass over the longest episodes and an optimizer's step, as no update of a short start makes them."""

import resource
import time
from typing import Any

import torch

from sqale_grpo.rollout.policy_path import resolve_policy
from sqale_grpo.train.launch import sharding
from sqale_grpo.train.log_probs import written_log_probs
from sqale_grpo.train.memory import memory_parts, peak
from sqale_grpo.train.model_shape import model_shape
from sqale_grpo.train.preflight.table import CheckRow, failed, right

GIB = 2**30
ROOM = 0.02  # of a card: less than this free at the peak is too little for what the allocator cuts up
OVER = 1.15  # the peak over the plan's estimate that is told


def longest_pass(trainer: Any) -> CheckRow:
    """Forward and backward over a micro-batch of episodes at their budget, then a step at rate 0.

    The gradients are added up and the optimizer's state is made as in an update: nothing of it is put back, so the run
    must not go on after it.
    """
    name, config = "memory", trainer.experiment.config
    cuda = trainer.accelerator.device.type == "cuda"
    rows, tokens = trainer.args.per_device_train_batch_size, config.rollout.max_episode_tokens
    started = time.monotonic()
    if cuda:
        torch.cuda.reset_peak_memory_stats()
    try:
        dummy_update(trainer, rows, tokens)
    except torch.OutOfMemoryError as error:
        if trainer.accelerator.num_processes > 1:
            raise  # the others wait inside the pass
        return failed(
            name,
            f"the GPU is full in a pass of {rows} x {tokens:,} tokens and a step ({str(error).splitlines()[0]})",
            "lower rollout.vllm_memory_share or train.micro_batch, or share more out (scripts/launch/zero3.sh)",
        )
    seconds = time.monotonic() - started
    told = f"a pass of {rows} x {tokens:,} tokens and a step: {seconds:.1f} s"
    if not cuda:
        used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        return right(name, f"{told}, the process {used / GIB:.1f} GiB at its peak")
    card = torch.cuda.get_device_properties(trainer.accelerator.device).total_memory
    reserved = torch.cuda.max_memory_reserved()
    planned = estimate(trainer, card)
    found = f"{told}, {reserved / GIB:.1f} of {card / GIB:.1f} GiB reserved at the peak, {planned / GIB:.1f} planned"
    if reserved > card * (1 - ROOM):
        return failed(name, found, "too close: lower rollout.vllm_memory_share or train.micro_batch")
    if reserved > planned * OVER:
        return CheckRow(name, "warned", found, "more than the plan; the kernels may be missing")
    return right(name, found)


def dummy_update(trainer: Any, rows: int, tokens: int) -> None:
    """One pass and a step at rate 0, as the trainer makes them; half of the tokens count as the policy's."""
    device = trainer.accelerator.device
    ids = torch.randint(0, 256, (rows, tokens), generator=torch.Generator().manual_seed(0)).to(device)
    written = torch.ones(rows, tokens // 2, dtype=torch.long, device=device)
    model, optimizer = trainer.model_wrapped, trainer.optimizer
    trainer.accelerator.gradient_state._set_sync_gradients(True)
    logps, _ = written_log_probs(model, ids, torch.ones_like(ids), written, rows, trainer.accelerator.autocast)
    for group in optimizer.param_groups:
        group["lr"] = 0.0
    trainer.accelerator.backward(logps.sum() / logps.numel())
    if not trainer.is_deepspeed_enabled:  # which makes its step in the backward pass
        trainer.accelerator.clip_grad_norm_(model.parameters(), trainer.args.max_grad_norm)
        optimizer.step()
    model.zero_grad()


def estimate(trainer: Any, card: int) -> float:
    """The plan's bytes on this GPU, a colocated engine's share among them."""
    config, processes = trainer.experiment.config, trainer.accelerator.num_processes
    shape = model_shape(resolve_policy(config.model.path), config.model.lora_targets)
    kind = sharding() if sharding() != "none" else ("single" if processes == 1 else "ddp")
    parts = memory_parts(config, trainer.args.per_device_train_batch_size, kind, shape)
    engine = config.rollout.vllm_memory_share * card if config.rollout.backend == "vllm_colocate" else 0.0
    return peak(parts, processes) + engine
