"""What a launch of several processes needs before any model is loaded, and the checks that it can be what it says."""

import json
import os
from pathlib import Path

import torch.distributed

from sqale_grpo.settings.check import ConfigError
from sqale_grpo.settings.keys import Config
from sqale_grpo.settings.shape import launched_processes

FILE = "launch.json"  # in a checkpoint: the launch that wrote it
# What to launch with, by sharding.
CONFIGURATIONS = {
    "none": "torchrun, or configs/accelerate/ddp.yaml",
    "zero2": "configs/accelerate/zero2.yaml",
    "zero3": "configs/accelerate/zero3.yaml",
    "fsdp2": "configs/accelerate/fsdp2.yaml",
}


def uses_deepspeed() -> bool:
    """Whether accelerate's launcher asked for DeepSpeed."""
    return os.environ.get("ACCELERATE_USE_DEEPSPEED") == "true"


def uses_fsdp() -> bool:
    """Whether accelerate's launcher asked for FSDP."""
    return os.environ.get("ACCELERATE_USE_FSDP") == "true"


def start_deepspeed_on_cpu(config: Config) -> None:
    """Let DeepSpeed talk through gloo where a launch asks for it and the CPU trains (else it starts itself)."""
    if not (config.train.use_cpu and uses_deepspeed()):
        return
    import deepspeed

    # It would compile an operator of its own (a minute of C++) for a call that only inference makes.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    deepspeed.init_distributed(dist_backend="gloo")


def check_world_size(processes: int) -> None:
    """ConfigError where the processes that found each other are not those that the launcher announced."""
    announced = launched_processes()
    together = torch.distributed.get_world_size() if torch.distributed.is_initialized() else 1
    if not announced == processes == together:
        raise ConfigError(
            f"{announced} processes were announced (WORLD_SIZE), {processes} train and {together} are connected; "
            "launch with torchrun --nproc_per_node N or accelerate launch --config_file configs/accelerate/…"
        )


def sharding() -> str:
    """How this launch shards what an optimizer holds: none, zero2, zero3, fsdp2."""
    if uses_deepspeed():
        return f"zero{os.environ.get('ACCELERATE_DEEPSPEED_ZERO_STAGE', '2')}"
    return "fsdp2" if uses_fsdp() else "none"


def save_launch(checkpoint: Path) -> None:
    """Note in ``checkpoint`` what launch wrote it."""
    launch = {"sharding": sharding(), "processes": launched_processes()}
    (checkpoint / FILE).write_text(json.dumps(launch), encoding="utf-8")


def check_resumed_launch(checkpoint: Path) -> None:
    """ConfigError where this launch cannot take over the optimizer's state that lies in ``checkpoint``.

    Each sharding has files of its own, and the trainer begins with a new optimizer where it finds none. ZeRO's are
    one a process.
    """
    path = checkpoint / FILE
    if not path.exists():
        return
    wrote = json.loads(path.read_text(encoding="utf-8"))
    now, processes = sharding(), launched_processes()
    if wrote["sharding"] != now:
        raise ConfigError(
            f"{checkpoint} holds an optimizer sharded by {wrote['sharding']}, and this launch shards by {now}; resume "
            f"with {CONFIGURATIONS.get(wrote['sharding'], 'the launch that wrote it')}"
        )
    if now.startswith("zero") and wrote["processes"] != processes:
        raise ConfigError(
            f"{checkpoint} holds an optimizer that ZeRO sharded over {wrote['processes']} processes, and this launch "
            f"has {processes}; resume with {wrote['processes']}"
        )
