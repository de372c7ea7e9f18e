"""The trainer: TRL's GRPOTrainer with this project's questions, episodes, rewards and checkpoints.

What it adds, and where: which questions (``_get_train_sampler``), the episodes (``rollout``), agreement over the
whole group wherever its members were generated (``_calculate_rewards``), the record of every episode, and a reference
policy that survives a resume (``_save_checkpoint``, ``_load_optimizer_and_scheduler``). An update whose gradient is no
number ends the run before its step (``_get_grad_norm``).
"""

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import gather_object
from torch.utils.data import Sampler
from trl import GRPOTrainer

from sqale_grpo.reward import Outcome, RewardParts, ablated, with_agreement
from sqale_grpo.rollout.play import PlayedEpisode, play_jobs
from sqale_grpo.rollout.record import episode_record, write_episodes
from sqale_grpo.rollout.tokens import RolloutStats
from sqale_grpo.rollout.world import EpisodeJob
from sqale_grpo.settings.run_folder import EPISODES
from sqale_grpo.settings.shape import process_index
from sqale_grpo.train import checkpoint as checkpoints
from sqale_grpo.train.anchor import ReferenceAnchor
from sqale_grpo.train.breaks import breaks_at, check_gradient, check_weights_finite, writing
from sqale_grpo.train.experiment import Experiment
from sqale_grpo.train.importance import off_policy_metrics
from sqale_grpo.train.log_probs import written_log_probs
from sqale_grpo.train.metrics import equal_groups, update_metrics, weigh_by_tokens
from sqale_grpo.train.micro_batches import by_length
from sqale_grpo.train.player import open_player
from sqale_grpo.train.rewards import check_void, execution_reward, void_together
from sqale_grpo.train.sync import engine_arguments, engine_seed, leave_the_base_alone, send_weights


class SqlGRPOTrainer(GRPOTrainer):
    """GRPO on multi-turn tool episodes over live databases."""

    _last_loaded_step: int  # TRL's: the update whose weights vLLM holds

    def __init__(self, experiment: Experiment, **trl_arguments: Any) -> None:
        self.experiment = experiment
        self.stage_seconds: dict[str, float] = defaultdict(float)
        self._update_started = time.monotonic()
        self._written: torch.Tensor | None = None
        self._sampled: torch.Tensor | None = None
        self._buffered_inputs: list[dict[str, Any]] | None = None
        self._played: list[PlayedEpisode] = []
        self._equal: torch.Tensor  # an episode of this process: are its group's rewards all equal?
        self._losses: list[torch.Tensor] = []  # of the passes of this update, on this process
        self._pass_tokens: list[float] = []  # tokens that the policy wrote, a pass of this update, of all processes
        seed = engine_seed(experiment.config.seed, experiment.first_update, process_index())
        caching = experiment.config.rollout.vllm_prefix_caching
        with engine_arguments(seed=seed, enable_prefix_caching=caching):
            super().__init__(
                reward_funcs=[execution_reward],
                rollout_func=lambda prompts, trainer: trainer.rollout(prompts),
                train_dataset=experiment.dataset,
                **trl_arguments,
            )
        if self.use_vllm:
            leave_the_base_alone(self)
        train = experiment.config.train
        episodes, wanted = self.args.generation_batch_size, train.questions_per_update * train.candidates
        if episodes != wanted or self.args.gradient_accumulation_steps != self.args.steps_per_generation:
            # As when a launcher started other processes than its environment says.
            raise RuntimeError(
                f"an update would hold {episodes} episodes on {self.accelerator.num_processes} processes, not {wanted}"
            )
        every = train.anchor_updates
        if self.beta and every:
            self.add_callback(ReferenceAnchor(self.ref_model, self.accelerator, every))

    @contextmanager
    def clock(self, stage: str) -> Iterator[None]:
        """Add the block's wall seconds to ``stage`` of this update."""
        started = time.monotonic()
        try:
            yield
        finally:
            self.stage_seconds[stage] += time.monotonic() - started

    def _get_train_sampler(self, dataset: Any = None) -> Sampler:
        return self.experiment.sampler(self.args.steps_per_generation * self.num_iterations)

    # Rollouts

    def _generate(self, prompts: list) -> Any:
        """TRL's, with vLLM given the update's weights beforehand, so that the time it takes is known."""
        self.load_weights()
        return super()._generate(prompts)

    def load_weights(self) -> None:
        """Give vLLM, where it generates, the policy's weights; nothing where it has them."""
        if self.use_vllm and self.state.global_step != self._last_loaded_step:
            with self.clock("sync"):
                send_weights(self)
            self._last_loaded_step = self.state.global_step

    def rollout(self, prompts: list[str]) -> dict[str, list]:
        """Play this process's slice of the update; ``prompts`` are question indices, each repeated a candidate."""
        jobs = self.experiment.jobs(
            [int(prompt) for prompt in prompts], self.state.global_step, self.accelerator.process_index
        )
        self._played = self._play(jobs)
        width = max(len(p.tokens.completion_ids) for p in self._played)
        self._written = torch.zeros(len(jobs), width, dtype=torch.long)
        for row, played in enumerate(self._played):
            self._written[row, : len(played.tokens.env_mask)] = torch.tensor(played.tokens.env_mask)
        self._written = self._written.to(self.accelerator.device)
        return {
            "prompt_ids": [p.tokens.prompt_ids for p in self._played],
            "completion_ids": [p.tokens.completion_ids for p in self._played],
            "logprobs": [p.tokens.logprobs for p in self._played],
            "env_mask": [p.tokens.env_mask for p in self._played],
            "outcome": [p.outcome for p in self._played],
        }

    def _play(self, jobs: list[EpisodeJob]) -> list[PlayedEpisode]:
        experiment = self.experiment
        stats = RolloutStats()
        with open_player(self, experiment, stats) as play:
            played = play_jobs(experiment.corpus, jobs, experiment.settings, play, experiment.pool, self.clock)
        # Waiting for tools happens inside generation; the two are reported apart.
        self.stage_seconds["tools"] += stats.tool_seconds
        self.stage_seconds["generate"] -= stats.tool_seconds
        return played

    # Rewards

    def _calculate_rewards(
        self, inputs: list[dict], prompts: list, completions: list, completion_ids_list: list
    ) -> torch.Tensor:
        """Complete every group's outcomes with agreement, then let TRL gather the rewards (all rows, 1)."""
        with self.clock("reward"):
            everywhere = gather_object([(str(x["prompt"]), x["outcome"]) for x in inputs])
            size = self.num_generations
            section = self.experiment.config.reward
            parts = RewardParts(section.partial_credit, section.bonuses)
            finished: list[Outcome] = []
            for start in range(0, len(everywhere), size):
                members = everywhere[start : start + size]
                if len({prompt for prompt, _ in members}) != 1:
                    raise RuntimeError(f"candidates from {start} on belong to different questions: wrong sampler")
                outcomes = void_together([outcome for _, outcome in members])
                finished += [ablated(each, parts) for each in with_agreement(outcomes)]
            check_void(finished, self.state.global_step, self.accelerator.is_main_process)
            first = self.accelerator.process_index * len(inputs)
            for x, played, outcome in zip(inputs, self._played, finished[first:], strict=False):
                x["outcome"] = played.outcome = outcome
        rewards = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
        known = [None if reward.isnan() else reward.item() for reward in rewards[:, 0]]
        equal = equal_groups(known, size)[first : first + len(inputs)]
        self._equal = torch.tensor(equal, device=self.accelerator.device)
        return rewards

    def _generate_and_score_completions(self, inputs: list[dict]) -> dict[str, Any]:
        before, started = sum(self.stage_seconds.values()), time.monotonic()
        output = super()._generate_and_score_completions(inputs)
        # A mean of equal float32 is not always the float itself; divided by TRL's 1e-4 the difference would count.
        output["advantages"] = output["advantages"].masked_fill(self._equal, 0.0)
        inside = sum(self.stage_seconds.values()) - before  # the rest is TRL's: reference pass, padding, advantages
        self.stage_seconds["reference"] += time.monotonic() - started - inside
        self._record(output["advantages"].tolist())
        if "importance_sampling_ratio" in output:
            self._note_importance(output)
        return output

    def _note_importance(self, output: dict[str, torch.Tensor]) -> None:
        """How far vLLM's probabilities are from the trainer's, and what the correction leaves of the update."""
        train = self.experiment.config.train
        figures = off_policy_metrics(
            output["old_per_token_logps"],
            output["sampling_per_token_logps"],
            output["tool_mask"] * output["completion_mask"],
            train.importance_cap,
            train.importance_level,
            train.importance_mode == "mask",
            self.accelerator.gather,
        )
        for name, value in figures.items():
            self._metrics["train"][name].append(value)

    def _record(self, advantages: list[float]) -> None:
        """Write the update's episodes and its metrics; the main process does, for all."""
        with self.clock("record"):
            update = self.state.global_step
            bucket_of = self.experiment.bucket_name
            records = gather_object(
                [
                    episode_record(each, update, bucket_of(each.job.index), advantage)
                    for each, advantage in zip(self._played, advantages, strict=True)
                ]
            )
            if self.accelerator.is_main_process:
                with writing(self.experiment.folder / EPISODES):
                    write_episodes(self.experiment.folder / EPISODES, update, records)
            for name, value in update_metrics(records, self.num_generations).items():
                self._metrics["train"][name].append(value)
        self._played = []

    # Forward and backward

    def _prepare_inputs(self, generation_batch: Any) -> dict[str, Any]:
        """TRL's, except for the split into micro-batches: by length instead of at random."""
        if not self.model.training:
            return super()._prepare_inputs(generation_batch)
        steps = self.args.steps_per_generation
        if self._step % (steps * self.num_iterations) == 0 or self._buffered_inputs is None:
            batch = self._generate_and_score_completions(generation_batch)
            self._buffered_inputs = by_length(batch, steps)
            self._written = None
        return self._buffered_inputs[self._step % steps]

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        self._written = inputs["tool_mask"]
        self._sampled = inputs["sampling_per_token_logps"]
        with self.clock("forward"):
            loss = super()._compute_loss(model, inputs)
        self._sampled = None
        written = (inputs["completion_mask"] * inputs["tool_mask"]).sum()
        self._pass_tokens.append(self.accelerator.reduce(written, reduction="sum").item())
        return loss

    def training_step(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        """TRL's; what is left of its time after the rollout and the forward pass is the backward pass.

        An update that is left out has no episodes and no gradient. Raises RunBreak for what the run cannot go on after.
        """
        if self.state.global_step in self.experiment.left_out:
            return torch.zeros((), device=self.accelerator.device)
        before, started = sum(self.stage_seconds.values()), time.monotonic()
        with breaks_at(self.state.global_step):
            loss = super().training_step(*args, **kwargs)
        self._losses.append(loss.detach())
        inside = sum(self.stage_seconds.values()) - before
        self.stage_seconds["backward"] += time.monotonic() - started - inside
        return loss

    def _get_grad_norm(self, model: Any, grad_norm: Any = None) -> Any:
        """The gradient's norm, before the optimizer's step; RunBreak where it is no number."""
        norm = super()._get_grad_norm(model, grad_norm=grad_norm)
        if norm is not None:
            with breaks_at(self.state.global_step):
                check_gradient(float(norm), self._losses)
        self._losses.clear()
        return norm

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """TRL's, with the update's seconds by stage; ``other`` is what no stage accounts for.

        ``anchored`` is 1 at the update after which the reference became a copy of the policy.
        """
        if "loss" in logs:
            total = time.monotonic() - self._update_started
            seconds = {**self.stage_seconds, "other": total - sum(self.stage_seconds.values()), "update": total}
            logs |= {f"seconds/{stage}": spent for stage, spent in seconds.items()}
            self.stage_seconds.clear()
            self._update_started = time.monotonic()
            weigh_by_tokens(self._metrics["train"], self._pass_tokens)
            self._pass_tokens.clear()
            every = self.experiment.config.train.anchor_updates
            logs["anchored"] = float(bool(self.beta and every and self.state.global_step % every == 0))
        super().log(logs, start_time)

    def _get_per_token_logps_and_entropies(
        self,
        model: Any,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        logits_to_keep: int,
        batch_size: int | None = None,
        compute_entropy: bool = False,
        **_: Any,
    ) -> tuple[torch.Tensor, torch.Tensor | None, None]:
        """TRL's log-probabilities and entropies (rows, ``logits_to_keep``), of the tokens that the policy wrote."""
        assert self._written is not None, "set by the rollout and, for each micro-batch, by the loss"
        written = torch.nn.functional.pad(self._written, (0, logits_to_keep - self._written.shape[1]))
        written = written * attention_mask[:, -logits_to_keep:]
        rows = batch_size or len(input_ids)
        logps, entropies = written_log_probs(model, input_ids, attention_mask, written, rows, self.accelerator.autocast)
        if self._sampled is not None:
            # How far the sampler's probabilities are from the trainer's: 0 except for rounding, or something is wrong.
            apart = (logps.detach() - self._sampled).abs()[written > 0]
            total = torch.stack([apart.sum(), torch.tensor(float(len(apart)), device=apart.device)])
            summed, tokens = self.accelerator.reduce(total, reduction="sum").tolist()
            self._metrics["train"]["sampling/logp_difference"].append(summed / max(1.0, tokens))
        return logps, entropies if compute_entropy else None, None

    # Checkpoints

    def create_model_card(self, *_: Any, **__: Any) -> None:
        """Nothing: TRL's card would name no model and ask it a question of its own; an export writes a true one."""

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        folder = Path(self._get_output_dir(trial=trial)) / f"checkpoint-{self.state.global_step}"
        with self.clock("save"), breaks_at(self.state.global_step - 1), checkpoints.whole_or_gone(self, folder):
            check_weights_finite(self.accelerator.unwrap_model(self.model))
            super()._save_checkpoint(model, trial)
            checkpoints.finish(self, folder, self.experiment.config.train.keep_checkpoints)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        super()._load_optimizer_and_scheduler(checkpoint)
        if checkpoint is None:
            return
        checkpoints.follow_schedule(self.lr_scheduler)
        if self.beta:
            checkpoints.restore_reference(self, Path(checkpoint))
