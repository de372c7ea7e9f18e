"""What the run is about to play: all processes draw the same, and the gold queries run on their databases."""

import hashlib
import importlib.metadata
import json
import sqlite3
from typing import Any

from accelerate.utils import gather_object

from sqale_grpo.reward import GoldError, score_candidate
from sqale_grpo.rollout.group import drawn, open_group
from sqale_grpo.settings.files import read_prompts
from sqale_grpo.train.experiment import Experiment
from sqale_grpo.train.preflight.table import CheckRow, failed, right

PACKAGES = ("torch", "transformers", "tokenizers", "trl", "sqlglot")
SHOWN = 3


def same_draws(experiment: Experiment, update: int) -> CheckRow:
    """Whether all processes, which call this together, would play the same ``update`` with the same software."""
    name = "draws"
    mine = digests(experiment, update)
    everywhere: list[dict[str, str]] = gather_object([mine])
    apart = [what for what in mine if len({each[what] for each in everywhere}) > 1]
    if apart:
        told = "; ".join(f"{what}: {', '.join(sorted({each[what] for each in everywhere}))}" for what in apart)
        return failed(
            name,
            f"the processes differ in {told}",
            "the same files, configuration and packages for all: a shared file system, one environment",
        )
    return right(name, f"update {update} is the same on {len(everywhere)} processes ({mine['update']})")


def digests(experiment: Experiment, update: int) -> dict[str, str]:
    """What must be equal everywhere: questions, texts, tables and gates of ``update``, prompts, versions."""
    rows: list[Any] = []
    candidates = experiment.config.train.candidates
    batch = experiment.batch(update)
    for job in experiment.jobs([index for index in batch for _ in range(candidates)], update, 0):
        rows.append([job.index, job.candidate, job.gated, job.repeat])
        if job.candidate == 0:
            question, tables = drawn(experiment.corpus, job.index, job.draw, experiment.settings)
            rows.append([question.question_id, question.text, question.gold_sql, list(tables)])
    prompts = read_prompts(experiment.config.env.prompts)
    return {
        "update": _digest(rows),
        "prompts": _digest(repr(prompts)),
        "SQLite": sqlite3.sqlite_version,
        **{package: importlib.metadata.version(package) for package in PACKAGES},
    }


def golds_run(experiment: Experiment, first: int, updates: int, process: int, processes: int) -> CheckRow:
    """Whether the gold queries of the first updates run on the databases that are drawn for them.

    Each process looks at its share of the questions.
    """
    name = "gold queries"
    seed, settings = experiment.config.seed, experiment.settings
    last = min(first + updates, experiment.config.train.updates)
    chosen = [(index, update) for update in range(first, last) for index in dict.fromkeys(experiment.batch(update))]
    broken = []
    for index, update in chosen[process::processes]:
        with open_group(experiment.corpus, index, (seed, update), settings) as group:
            question = group.question
            try:
                outcome = score_candidate(
                    question.gold_sql,
                    group.database.path,
                    question.gold_sql,
                    group.sandbox,
                    gold_seconds=settings.gold_seconds,
                    question_id=question.question_id,
                )
            except GoldError as error:
                broken.append(f"{question.question_id} of update {update} ({error})")
                continue
            if outcome.tier != "equivalent":
                broken.append(f"{question.question_id} of update {update} is {outcome.tier} against itself")
    if broken:
        more = f" and {len(broken) - SHOWN} more" if len(broken) > SHOWN else ""
        return failed(
            name,
            f"{len(broken)} of {len(chosen[process::processes])} do not run: {'; '.join(broken[:SHOWN])}{more}",
            "their episodes would be void: prepare the corpus again here, or raise reward.gold_seconds",
        )
    return right(name, f"all of {len(chosen)} run, of updates {first} to {last - 1}")


def _digest(value: Any) -> str:
    return hashlib.blake2b(json.dumps(value, default=str).encode(), digest_size=6).hexdigest()
