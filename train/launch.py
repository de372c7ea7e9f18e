"""What a launch of several processes needs before any model is loaded, and the check that it is the launch it says."""

import os

import torch.distributed

from train.config import Config
from train.config_check import ConfigError
from train.shape import launched_processes


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
