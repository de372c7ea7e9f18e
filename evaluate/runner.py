"""An evaluation from its configuration to its summary: resumable, one record an episode.

The seed chooses the questions; they are played in chunks of ``batch`` episodes, whole questions each, and every chunk
is a file. What is there is not played again, so an evaluation that was killed goes on with the next chunk, and meets
the same questions, phrasings, databases and (where the backend samples by key) tokens.
"""

import dataclasses
import datetime
import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from rich.console import Console

from sqale_grpo.corpus import PreparedCorpus
from sqale_grpo.env.chance import rng
from sqale_grpo.env.errors import UserError
from sqale_grpo.env.files import LOCK, PARTIAL, hold_folder, write_whole
from sqale_grpo.evaluate.backend import Backend
from sqale_grpo.evaluate.chunk import play_chunk
from sqale_grpo.evaluate.metrics import summarize
from sqale_grpo.evaluate.open_backend import open_backend
from sqale_grpo.evaluate.progress import ChunkProgress
from sqale_grpo.evaluate.records import CONFIG, FAILED, SUMMARY, read_records, record_files, write_records
from sqale_grpo.rollout.group import episode_settings
from sqale_grpo.rollout.play import TOOL_THREADS
from sqale_grpo.settings.check import ConfigError, check_resume
from sqale_grpo.settings.corpora import open_split
from sqale_grpo.settings.evaluation import (
    FREE_ON_RESTART,
    EvaluationConfig,
    check_evaluation,
    load_evaluation,
    with_names,
)
from sqale_grpo.settings.files import read_prompts
from sqale_grpo.settings.load import flatten, save_config

BACKEND = "backend.json"


class EvaluationError(UserError):
    """An evaluation that is not finished because questions failed for reasons outside of the model."""

    exit_status = 1


def run_evaluation(
    config: EvaluationConfig,
    folder: str | Path,
    console: Console | None = None,
    open_model: Callable[[EvaluationConfig], Backend] = open_backend,
) -> Path:
    """Play the evaluation in ``folder``, or what is missing of it, and return the folder.

    A finished one is left as it is, and no model is loaded. ``open_model`` opens the backend. Raises ConfigError, also
    where the folder holds another evaluation; EvaluationError where questions failed: the same call tries them again.
    """
    console, folder = console or Console(), Path(folder)
    config = with_names(config)
    check_evaluation(config)
    read_prompts(config.env.prompts)
    check_folder(config, folder)
    if (folder / SUMMARY).exists():
        saved = load_evaluation([folder / CONFIG])
        if saved.group != config.group:  # what tables read, and no answer depends on
            save_config(dataclasses.replace(saved, group=config.group), folder / CONFIG)
        console.print(f"{folder} is finished", highlight=False, soft_wrap=True)
        return folder
    corpus = open_split(config.corpus, config.corpus.split, config.env.query_seconds, config.env.max_rows)
    chosen = choose_questions(corpus, config.questions, config.seed, config.corpus.difficulties)
    if all(corpus.unstable()[index] for index in chosen):
        raise ConfigError(
            f"no question is left to average: the gold results of all {len(chosen)} chosen ones may change between "
            "two runs; set more questions=... or another seed=..."
        )
    with hold_folder(folder, error=ConfigError, instead="set another name=..."):
        check_folder(config, folder)  # another process may have begun since
        save_config(config, folder / CONFIG)
        facts, failed = _play_missing(config, folder, console, corpus, chosen, open_model)
        _finish(config, folder, facts, failed)
    return folder


def choose_questions(corpus: PreparedCorpus, count: int, seed: int, difficulties: Sequence[str] = ()) -> list[int]:
    """Numbers, rising, of ``count`` questions drawn without repetition; the same seed gives the same for every model.

    A corpus with fewer gives all of them. ``difficulties``: draw from these bands alone; ConfigError where none is.
    """
    able = range(len(corpus)) if not difficulties else _of_bands(corpus, difficulties)
    return sorted(rng("evaluation questions", seed).sample(able, min(count, len(able))))


def _of_bands(corpus: PreparedCorpus, difficulties: Sequence[str]) -> list[int]:
    bands = corpus.column("difficulty")
    able = [index for index, band in enumerate(bands) if band in difficulties]
    if not able:
        known = ", ".join(sorted(set(bands) - {""})) or "none"
        raise ConfigError(
            f"corpus.difficulties={list(difficulties)} leaves no question of {corpus.directory}; its bands are {known}"
        )
    return able


def check_folder(config: EvaluationConfig, folder: Path) -> None:
    """ConfigError where ``folder`` holds something else than this evaluation, or one of which nothing was played."""
    if (folder / CONFIG).exists():
        try:
            saved = load_evaluation([folder / CONFIG])
        except ConfigError as error:
            raise ConfigError(
                f"{folder} holds no evaluation of this version ({error}); set another name=..."
            ) from error
        if record_files(folder) or (folder / SUMMARY).exists():
            check_resume(flatten(saved), flatten(config), str(folder), FREE_ON_RESTART)
    elif folder.exists() and any(path.name != LOCK and path.suffix != PARTIAL for path in folder.iterdir()):
        raise ConfigError(f"{folder} is not empty and holds no evaluation; set another name=... or output=...")


def finished(folder: str | Path) -> bool:
    """Whether the evaluation in ``folder`` has all of its episodes and its summary."""
    return (Path(folder) / SUMMARY).exists()


def _play_missing(
    config: EvaluationConfig,
    folder: Path,
    console: Console,
    corpus: PreparedCorpus,
    chosen: Sequence[int],
    open_model: Callable[[EvaluationConfig], Backend],
) -> tuple[dict[str, Any], dict[int, str]]:
    """Play what has no record yet. Returns the backend's facts, and by question number what failed and why."""
    files = record_files(folder)
    done = {index for path in files for index in pq.read_table(path, columns=["index"]).column(0).to_pylist()}
    missing = [index for index in chosen if index not in done]
    backend = open_model(config)
    failed: dict[int, str] = {}
    try:
        _note_backend(folder, backend.facts)
        if not missing:
            return backend.facts, failed
        settings = episode_settings(config, config.schema)
        number = 1 + max((int(path.stem) for path in files), default=-1)
        step, causes = max(1, config.batch // config.candidates), corpus.unstable()
        with (
            ThreadPoolExecutor(TOOL_THREADS, thread_name_prefix="tools") as pool,
            ChunkProgress(console, len(chosen) * config.candidates, len(chosen) - len(missing), config) as progress,
        ):
            for start in range(0, len(missing), step):
                chunk = missing[start : start + step]
                rows, lost = play_chunk(
                    corpus,
                    chunk,
                    settings,
                    progress.watched(backend),
                    pool,
                    candidates=config.candidates,
                    seed=config.seed,
                    causes=causes,
                )
                if rows:
                    write_records(folder, number, rows)
                    number += 1
                failed |= lost
                progress.advance(rows, len(lost))
                if not rows:
                    break  # nothing works: what is left would fail too, one slow retry after the other
        return backend.facts, failed
    finally:
        backend.close()


def _note_backend(folder: Path, facts: dict[str, Any]) -> None:
    """Keep what the backend says of itself; ConfigError where an earlier start of this evaluation had another one."""
    place = folder / BACKEND
    if not place.exists() or not record_files(folder):
        _write_json(place, facts)
    before = json.loads(place.read_text(encoding="utf-8"))
    for name in {**facts, **before}:
        if before.get(name) != facts.get(name):
            raise ConfigError(
                f"{folder} was begun with a backend whose {name} was {before.get(name)!r} and now is "
                f"{facts.get(name)!r}: its episodes would not be alike; set another name=..."
            )


def _finish(config: EvaluationConfig, folder: Path, facts: dict[str, Any], failed: dict[int, str]) -> None:
    """Write the summary, or what failed."""
    if failed:
        _write_json(folder / FAILED, {str(index): message for index, message in sorted(failed.items())})
        first = next(iter(sorted(failed.items())))
        raise EvaluationError(
            f"{len(failed)} of the questions could not be played, the first because: {first[1]}. {folder / FAILED} "
            "lists them, and no average leaves them out: start the same evaluation again to play them"
        )
    (folder / FAILED).unlink(missing_ok=True)
    parameters = config.parameters or facts.get("parameters")
    summary = {
        "name": config.name,
        "model": config.model,
        "backend": config.backend,
        **facts,
        "parameters": parameters,
        "benchmark": config.benchmark,
        "corpus": config.corpus.name,
        "split": config.corpus.split,
        "schema": config.schema,
        "seed": config.seed,
        "temperature": config.sampling.temperature,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        **summarize(read_records(folder), parameters),
    }
    _write_json(folder / SUMMARY, summary)


def _write_json(path: Path, value: Any) -> None:
    write_whole(path, json.dumps(value, indent=1, ensure_ascii=False) + "\n")
