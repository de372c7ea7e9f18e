"""What generates a trainer's episodes: lockstep decoding, vLLM in this process, or a vLLM server."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any

from trl.models import unwrap_model_for_generation

from sqale_grpo.rollout.lockstep import play
from sqale_grpo.rollout.play import PlayFunction
from sqale_grpo.rollout.requests import Engine, play_requests
from sqale_grpo.rollout.tokens import RolloutStats
from sqale_grpo.rollout.vllm_server import server_engine
from sqale_grpo.train.experiment import Experiment
from sqale_grpo.train.sharded import unsharded


@contextmanager
def open_player(trainer: Any, experiment: Experiment, stats: RolloutStats) -> Iterator[PlayFunction]:
    """The function that plays this process's episodes with the current weights, usable inside the block.

    ``trainer`` is a GRPOTrainer. Where vLLM generates, TRL has given it the weights already.
    """
    frame, sampling, pool = experiment.frame, experiment.sampling, experiment.pool
    if not trainer.use_vllm:
        gather = trainer.args.ds3_gather_for_generation
        with (
            unwrap_model_for_generation(
                trainer.model_wrapped, trainer.accelerator, gather_deepspeed3_params=gather
            ) as model,
            unsharded(model),
        ):
            yield partial(play, model, frame, sampling=sampling, pool=pool, stats=stats)
        return
    opened = _server_engine if trainer.vllm_mode == "server" else _colocated_engine
    with opened(trainer, experiment) as engine:
        yield partial(play_requests, engine, frame, sampling=sampling, pool=pool, stats=stats)


@contextmanager
def _colocated_engine(trainer: Any, experiment: Experiment) -> Iterator[Engine]:
    """TRL's own ``LLM``; one that sleeps between rollouts has its cache only in the block, as in TRL's ``generate``."""
    from sqale_grpo.rollout.vllm_engine import VllmEngine

    generation = trainer.vllm_generation
    if generation.enable_sleep_mode:
        generation.llm.wake_up(tags=["kv_cache"])
    try:
        with VllmEngine(generation.llm, experiment.sampling, experiment.frame.stop_ids) as engine:
            yield engine
    finally:
        if generation.enable_sleep_mode:
            generation.llm.sleep(level=2)
            generation._llm_weights_sleeping = True


def _server_engine(trainer: Any, experiment: Experiment) -> AbstractContextManager[Engine]:
    """Each process sends its own requests; the main one has sent the weights, which the others must not overtake."""
    trainer.accelerator.wait_for_everyone()
    episodes = trainer.args.per_device_train_batch_size * trainer.args.steps_per_generation
    return server_engine(
        experiment.config.rollout.vllm_server, experiment.sampling, experiment.frame.stop_ids, episodes
    )
