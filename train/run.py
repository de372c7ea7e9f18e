"""A training run: from a checked configuration to the last checkpoint."""

import os
import warnings
from dataclasses import dataclass
from pathlib import Path

import torch
import transformers
from rich.console import Console
from transformers import PrinterCallback
from trl import GRPOConfig

from sqale_grpo.rollout.policy import load_policy, load_tokenizer, resolve_policy
from sqale_grpo.settings.corpora import open_corpus
from sqale_grpo.settings.files import read_prompts
from sqale_grpo.settings.keys import Config
from sqale_grpo.settings.run_folder import checkpoint_update, latest_checkpoint, prepare_folder, run_folder
from sqale_grpo.settings.shape import accumulation, is_main_process, launched_processes
from sqale_grpo.train.anchor import with_adapters
from sqale_grpo.train.backend_check import check_backend
from sqale_grpo.train.breaks import Healing, Heals, RunBreak, can_start_again
from sqale_grpo.train.experiment import make_experiment
from sqale_grpo.train.held_out import HeldOut
from sqale_grpo.train.launch import check_resumed_launch, check_world_size, sharding, start_deepspeed_on_cpu, uses_fsdp
from sqale_grpo.train.next_steps import is_finished
from sqale_grpo.train.plan import plan_warnings, warmup_steps
from sqale_grpo.train.preflight.run import Preflight
from sqale_grpo.train.progress import ProgressLog, logged_updates
from sqale_grpo.train.push import CheckpointPush
from sqale_grpo.train.start_checks import (
    check_built,
    check_databases,
    check_inputs,
    check_model_path,
    check_room,
    check_template,
    check_trackers,
    eligible_questions,
)
from sqale_grpo.train.sync import engine_facts
from sqale_grpo.train.trackers import EpisodeTables, continue_run, tracker_callbacks
from sqale_grpo.train.trainer import SqlGRPOTrainer

PROJECT = "sqale-grpo"  # where trackers file a run; WANDB_PROJECT names another


@dataclass(frozen=True)
class FinishedRun:
    """What a run leaves behind."""

    folder: Path
    trainer: SqlGRPOTrainer


def set_up_libraries(config: Config) -> None:
    """Bound torch's threads where the configuration does, and keep what is no news out of the run's lines."""
    if config.train.threads:
        torch.set_num_threads(config.train.threads)
    os.environ.setdefault("WANDB_PROJECT", PROJECT)
    # vLLM reads it when it makes its first engine. Left alone, it takes V2 where Triton is installed, else V1.
    os.environ["VLLM_USE_V2_MODEL_RUNNER"] = "1" if config.rollout.vllm_model_runner == "v2" else "0"
    transformers.utils.logging.disable_progress_bar()
    # transformers renames arguments that TRL still passes under their older names.
    warnings.filterwarnings("ignore", category=FutureWarning, module=r"transformers\.|torch\.nn")
    if config.train.use_cpu:
        os.environ.setdefault("DS_ACCELERATOR", "cpu")  # where DeepSpeed is installed it warns that it found no GPU
        # "falling back to its reference PyTorch implementation": on a CPU there is no other.
        transformers.utils.logging.set_verbosity_error()


def grpo_config(config: Config, folder: Path, world_size: int) -> GRPOConfig:
    """TRL's arguments for ``config``; every value that matters is set, since TRL's defaults move."""
    train, rollout, model = config.train, config.rollout, config.model
    micro_batch, steps = accumulation(config, world_size)
    # Without the correction TRL still wants to be told a level.
    importance_level = "sequence" if train.importance_level == "none" else train.importance_level
    return GRPOConfig(
        output_dir=str(folder),
        seed=config.seed,
        max_steps=train.updates,
        num_train_epochs=1,
        per_device_train_batch_size=micro_batch,
        gradient_accumulation_steps=steps,
        steps_per_generation=steps,
        num_iterations=1,
        num_generations=train.candidates,
        shuffle_dataset=False,
        learning_rate=train.learning_rate,
        lr_scheduler_type=train.lr_scheduler,
        warmup_steps=warmup_steps(config),
        optim="adamw_torch",
        adam_beta1=train.adam_beta1,
        adam_beta2=train.adam_beta2,
        weight_decay=train.weight_decay,
        max_grad_norm=train.max_grad_norm,
        logging_nan_inf_filter=False,  # it would show a mean of earlier losses in place of one that is no number
        bf16=model.dtype == "bfloat16",
        gradient_checkpointing=model.gradient_checkpointing,
        use_cpu=train.use_cpu,
        temperature=rollout.temperature,
        top_p=rollout.top_p,
        top_k=rollout.top_k,
        loss_type=train.loss_type,
        # Dr. GRPO's divisor. It caps nothing here: rollouts have their own budgets.
        max_completion_length=train.loss_constant,
        scale_rewards=train.scale_rewards,
        epsilon=train.clip_low,
        epsilon_high=train.clip_high,
        beta=train.beta,
        use_bias_correction_kl=train.kl_bias_correction,
        importance_sampling_level="token",
        # The correction for a sampler that is not the trainer; transformers' rollouts need none and TRL applies none.
        vllm_importance_sampling_correction=train.importance_level != "none",
        vllm_importance_sampling_mode=f"{importance_level}_{train.importance_mode}",
        vllm_importance_sampling_clip_max=train.importance_cap,
        vllm_importance_sampling_clip_min=None,
        use_vllm=rollout.backend != "transformers",
        vllm_mode="server" if rollout.backend == "vllm_server" else "colocate",
        vllm_server_base_url=rollout.vllm_server,
        vllm_group_port=rollout.vllm_group_port,
        vllm_tensor_parallel_size=1,
        vllm_gpu_memory_utilization=rollout.vllm_memory_share,
        vllm_max_model_length=rollout.max_episode_tokens,
        vllm_enable_sleep_mode=rollout.vllm_sleep,
        sync_ref_model=False,  # our own anchor does, and survives a resume
        save_strategy="steps",
        save_steps=train.save_updates,
        save_total_limit=None,  # our own rotation keeps the last whole checkpoint until the next one is
        logging_steps=1,
        report_to="none",  # our own callbacks of the trackers know what a resumed run has sent already
        run_name=config.name,
        project=os.environ.get("WANDB_PROJECT", PROJECT),
        disable_tqdm=True,
        dataloader_pin_memory=False,
        # Text alone gives a vision tower no gradients, so it is either frozen or looked for.
        ddp_find_unused_parameters=not model.freeze_vision,
        ddp_backend="gloo" if train.use_cpu and world_size > 1 else None,
        # For the reference: spread over GPUs by "auto", its parts could not be sharded.
        model_init_kwargs={"device_map": None} if uses_fsdp() else None,
    )


def push_callbacks(config: Config, folder: Path, console: Console) -> list[CheckpointPush]:
    """What pushes checkpoints during the run, where the configuration asks for it."""
    train = config.train
    return (
        [CheckpointPush(folder, train.push_every, train.push_repo, console)]
        if train.push_every and train.push_repo
        else []
    )


def healed(heals: Heals, error: RunBreak, config: Config) -> None:
    """Raise Healing where the run may go back to its last checkpoint after ``error`` (``train.heal``)."""
    if not can_start_again():
        return
    back = latest_checkpoint(heals.folder)
    where = back.name if back else "its beginning"
    if heals.heal(error, config.train.heal, where):
        left = f", and leaves update {error.update} out" if error.numbers else ""
        raise Healing(f"{error}\nthe run goes back to {where}{left} (train.heal={config.train.heal})") from error


def run(
    config: Config, resume: bool = False, console: Console | None = None, only_preflight: bool = False
) -> FinishedRun:
    """Train as ``config`` says, in OUTPUT/NAME; with ``resume`` go on from the last complete checkpoint there.

    ``only_preflight``: end before the first update, by PreflightDone or PreflightFailed.
    """
    console = console or Console()
    read_prompts(config.env.prompts)
    for check in (check_built, check_backend, check_trackers, check_model_path):
        check(config)
    set_up_libraries(config)
    start_deepspeed_on_cpu(config)
    corpus = open_corpus(config, config.corpus.split)
    check_databases(corpus)
    held_out = open_corpus(config, config.evaluate.split) if config.evaluate.every else None
    eligible = eligible_questions(config, corpus)
    checkpoint = prepare_folder(config, resume)
    if checkpoint is not None:
        check_resumed_launch(checkpoint)
    if not is_finished(config, checkpoint):
        check_room(config, sharding())  # after what a kill cut off has gone
    folder = run_folder(config)
    check_inputs(config, corpus, folder, resume)
    if is_main_process():
        continue_run(config, folder)
    path = resolve_policy(config.model.path)
    tokenizer = load_tokenizer(path)
    check_template(config, tokenizer)
    heals, first = Heals.of_run(folder), checkpoint_update(checkpoint)
    experiment = make_experiment(config, folder, corpus, eligible, tokenizer, first, heals.left_out())
    progress, sent = ProgressLog(folder, console), logged_updates(folder)
    trainer = SqlGRPOTrainer(
        experiment,
        model=with_adapters(load_policy(config.model, path), config),
        args=grpo_config(config, folder, launched_processes()),
        processing_class=tokenizer,
        callbacks=[
            *tracker_callbacks(config.train.log_to, sent),
            EpisodeTables(config, folder, sent),
            progress,  # after the trackers: they have got what stands in its file
            *push_callbacks(config, folder, console),
        ],
    )
    if held_out is not None:
        trainer.add_callback(HeldOut(trainer, held_out, console))
    check_world_size(trainer.accelerator.num_processes)
    if config.rollout.backend == "vllm_colocate":
        console.print(engine_facts(trainer.vllm_generation.llm), highlight=False)
    trainer.remove_callback(PrinterCallback)
    wanted = config.train.preflight and not config.train.use_cpu and not is_finished(config, checkpoint)
    if only_preflight or wanted:
        preflight = Preflight(folder, console, only_preflight)
        preflight.trainer = trainer
        trainer.callback_handler.callbacks.insert(0, preflight)  # before the progress bar takes the terminal
    if is_finished(config, checkpoint):
        console.print(f"nothing is left to resume: all {config.train.updates:,} updates are made", markup=False)
    elif checkpoint is not None:
        console.print(f"resuming from {checkpoint}", markup=False)
    for warning in plan_warnings(config):
        console.print(f"note: {warning}", highlight=False)
    if heals.left_out():
        console.print(f"left out after a break: updates {', '.join(map(str, sorted(heals.left_out())))}")
    try:
        trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    except RunBreak as error:
        healed(heals, error, config)
        raise
    finally:
        progress.stop()
    return FinishedRun(folder, trainer)
