"""The held-out questions, played between two updates with the policy as it then is (``evaluate.every``).

The same questions, wordings and databases each time, and those that `sqale-grpo evaluate` asks of a checkpoint with
the run's section ``evaluate``. What was measured lies in the run (``rollout.held_out``); trackers get it as ``eval/…``.
"""

import contextlib
import dataclasses
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from accelerate.utils import gather_object
from rich.console import Console
from transformers import TrainerCallback

from sqale_grpo.corpus import PreparedCorpus
from sqale_grpo.reward.score import regardless_of_copies
from sqale_grpo.rollout.group import episode_settings
from sqale_grpo.rollout.held_out import (
    FOLDER,
    LINES,
    add_line,
    best_update,
    drop_after,
    held_out_line,
    read_held_out,
)
from sqale_grpo.rollout.play import PlayedEpisode, play_jobs
from sqale_grpo.rollout.record import episode_record, write_episodes
from sqale_grpo.rollout.tokens import RolloutStats
from sqale_grpo.rollout.world import EpisodeJob
from sqale_grpo.settings.asked import choose_questions
from sqale_grpo.settings.check import ConfigError
from sqale_grpo.settings.keys import Config
from sqale_grpo.settings.load import flatten
from sqale_grpo.settings.of_run import run_evaluation_config
from sqale_grpo.settings.run_folder import keep_best
from sqale_grpo.train.breaks import writing
from sqale_grpo.train.player import open_player


class HeldOut(TrainerCallback):
    """Plays the questions at update 0, after every ``evaluate.every`` updates, and after the last one."""

    def __init__(self, trainer: Any, corpus: PreparedCorpus, console: Console) -> None:
        """``trainer``: the run's SqlGRPOTrainer; ``corpus``: the held-out split.

        ConfigError where all chosen questions have an unstable gold result: nothing could be averaged.
        """
        experiment = trainer.experiment
        config: Config = experiment.config
        asked = run_evaluation_config(config, "held-out", config.model.path)
        unstable = corpus.unstable()
        self.questions = [
            index for index in choose_questions(corpus, asked.questions, asked.seed) if not unstable[index]
        ]
        if not self.questions:
            raise ConfigError(
                "evaluate.every has no question left to play: the gold results of all chosen ones may change between "
                "two runs; set more evaluate.questions"
            )
        self.trainer, self.console, self.folder = trainer, console, Path(experiment.folder)
        self.asked = _digest(config, [corpus.question(index).question_id for index in self.questions])
        self.experiment = dataclasses.replace(
            experiment,
            corpus=corpus,
            settings=episode_settings(asked, asked.schema),
            sampling=asked.sampling.sampling(),
        )

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Drop what comes after the checkpoint that the run goes on from; measure where it begins, if nobody has."""
        if state.is_world_process_zero:
            drop_after(self.folder, state.global_step)
        self.trainer.accelerator.wait_for_everyone()
        measured = {line["update"] for line in read_held_out(self.folder) if line["asked"] == self.asked}
        self.trainer.accelerator.wait_for_everyone()  # all have read before one writes
        if state.global_step < args.max_steps and self._is_due(state.global_step, args.max_steps, measured):
            self.play(state.global_step)
        self._keep_best(state)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Measure, before a checkpoint of the same update is written."""
        if self._is_due(state.global_step, args.max_steps, set()):
            self.play(state.global_step)

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Keep the checkpoint apart that is the best so far."""
        self._keep_best(state)

    def play(self, update: int) -> dict[str, float]:
        """Play all questions, on all processes together, and note what came out; the line."""
        trainer, process = self.trainer, self.trainer.accelerator
        trainer.load_weights()
        with trainer.clock("held_out"):
            own = self._play(self.questions[process.process_index :: process.num_processes])
            records = gather_object([episode_record(each, update) for each in own])
        line = held_out_line(update, sorted(records, key=lambda row: row["question_id"]), self.asked)
        if process.is_main_process:
            with writing(self.folder / LINES):
                write_episodes(self.folder / FOLDER, update, records)
                add_line(self.folder, line)
            self.console.print(in_words(line), highlight=False, soft_wrap=True)
        self._log(line)
        return line

    def _play(self, questions: Sequence[int]) -> list[PlayedEpisode]:
        """This process's share, no more episodes at once than an update has on it."""
        trainer, experiment = self.trainer, self.experiment
        size = trainer.args.per_device_train_batch_size * trainer.args.steps_per_generation
        draw = (experiment.config.seed, 0)
        played: list[PlayedEpisode] = []
        with open_player(trainer, experiment, RolloutStats()) as play:
            for start in range(0, len(questions), size):
                jobs = [EpisodeJob(index, 0, False, draw) for index in questions[start : start + size]]
                played += play_jobs(experiment.corpus, jobs, experiment.settings, play, experiment.pool, _no_clock)
        for each in played:
            each.outcome = regardless_of_copies(each.outcome)
        return played

    def _log(self, line: dict[str, Any]) -> None:
        """To the trackers, beside the update's own metrics, which are logged after it.

        TRL adds a training update's figures to what is logged while the model trains, and transformers takes whatever
        was logged for the update's line.
        """
        values = {f"eval_{name}": value for name, value in line.items() if name not in ("update", "asked")}
        trainer, model = self.trainer, self.trainer.model
        was_training, due = model.training, trainer.control.should_log
        model.eval()
        try:
            trainer.log(values)
        finally:
            model.train(was_training)
            trainer.control.should_log = due

    def _is_due(self, update: int, last: int, measured: set[int]) -> bool:
        every = self.experiment.config.evaluate.every
        return (update % every == 0 or update == last) and update not in measured

    def _keep_best(self, state: Any) -> None:
        if not (self.experiment.config.evaluate.keep_best and state.is_world_process_zero):
            return
        lines = read_held_out(self.folder)
        if best_update(lines) == state.global_step and keep_best(self.folder, state.global_step):
            share = next(line["equivalent"] for line in lines if line["update"] == state.global_step)
            self.console.print(
                f"update {state.global_step}: the best on the held-out questions so far ({share:.1%}), kept as "
                f"{self.folder / 'checkpoint-best'}",
                highlight=False,
                soft_wrap=True,
            )


def in_words(line: dict[str, Any]) -> str:
    """A line as the run shows it."""
    if not line["n"]:
        return f"held-out questions after {line['update']} updates: the machine failed in every episode"
    rates = f"{line['equivalent']:.1%} [{line['equivalent_low']:.1%}, {line['equivalent_high']:.1%}]"
    void = f", {line['void']} void" if line["void"] else ""
    return f"held-out questions after {line['update']} updates: equivalent {rates} of {line['n']}{void}"


def _digest(config: Config, question_ids: Sequence[str]) -> str:
    """Of all that decides the figures beside the policy."""
    keys = flatten(config)
    kept = {name: keys[name] for name in keys if name.startswith(("evaluate.", "corpus.", "sampler.", "env."))}
    for name in ("evaluate.every", "evaluate.keep_best", "corpus.source", "corpus.prepared", "env.workers"):
        kept.pop(name)
    text = json.dumps([kept, list(question_ids)], sort_keys=True, default=str)
    return hashlib.blake2b(text.encode(), digest_size=6).hexdigest()


def _no_clock(stage: str) -> contextlib.AbstractContextManager[None]:
    """One clock runs over all stages."""
    return contextlib.nullcontext()
