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
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from rich.console import Console

from sqale_grpo.corpus import PreparedCorpus
from sqale_grpo.env.errors import UserError
from sqale_grpo.env.files import hold_folder, write_whole
from sqale_grpo.evaluate.backend import Backend
from sqale_grpo.evaluate.calibration import write_calibration
from sqale_grpo.evaluate.chunk import play_chunk
from sqale_grpo.evaluate.identity import IDENTITY, different_keys, digest, identity, missing, read_identity, told
from sqale_grpo.evaluate.metrics import summarize
from sqale_grpo.evaluate.open_backend import open_backend
from sqale_grpo.evaluate.place import check_folder
from sqale_grpo.evaluate.progress import ChunkProgress
from sqale_grpo.evaluate.records import CONFIG, FAILED, SUMMARY, read_records, record_files, write_records
from sqale_grpo.reward.ehrsql import ABSTAINS, Answered, abstention_scores, as_executed
from sqale_grpo.rollout.group import episode_settings
from sqale_grpo.rollout.play import TOOL_THREADS
from sqale_grpo.settings.asked import choose_questions
from sqale_grpo.settings.check import ConfigError
from sqale_grpo.settings.corpora import open_split
from sqale_grpo.settings.evaluation import (
    EvaluationConfig,
    check_evaluation,
    load_evaluation,
    with_names,
)
from sqale_grpo.settings.files import read_prompts
from sqale_grpo.settings.load import save_config

BACKEND = "backend.json"


@dataclasses.dataclass(frozen=True)
class Share:
    """This process's part of an evaluation that ``count`` processes play; ``wait`` returns when all have called it."""

    rank: int = 0
    count: int = 1
    wait: Callable[[], None] = lambda: None


ALONE = Share()


class EvaluationError(UserError):
    """An evaluation that is not finished because questions failed for reasons outside of the model."""

    exit_status = 1


def run_evaluation(
    config: EvaluationConfig,
    folder: str | Path,
    console: Console | None = None,
    open_model: Callable[[EvaluationConfig], Backend] = open_backend,
    share: Share = ALONE,
) -> Path:
    """Play the evaluation in ``folder``, or what is missing of it, and return the folder.

    A finished one is left as it is, and no model is loaded. ``open_model`` opens the backend. Raises ConfigError, also
    where the folder holds another evaluation; EvaluationError where questions failed: the same call tries them again.
    ``share``: where several processes call this at once, each plays its part; the first one keeps the folder's files.
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
    copies = config.reward.counter_databases
    corpus = open_split(config.corpus, config.corpus.split, config.env.query_seconds, config.env, copies)
    chosen = choose_questions(corpus, config.questions, config.seed, config.corpus.difficulties)
    if all(corpus.unstable()[index] for index in chosen):
        raise ConfigError(
            f"no question is left to average: the gold results of all {len(chosen)} chosen ones may change between "
            "two runs; set more questions=... or another seed=..."
        )
    with _held(folder, share):
        if share.rank == 0:
            check_folder(config, folder)  # another process may have begun since
            save_config(config, folder / CONFIG)
        share.wait()
        facts, failed = _play_missing(config, folder, console, corpus, chosen, open_model, share)
        share.wait()
        if share.rank == 0:
            lost = {} if share.count == 1 else _lost_elsewhere(folder, chosen, failed)
            _finish(config, folder, facts, failed | lost)
        share.wait()
    return folder


def _held(folder: Path, share: Share) -> AbstractContextManager[Any]:
    """The folder, held by the first of the processes that share it."""
    if share.rank:
        return nullcontext()
    return hold_folder(folder, error=ConfigError, instead="set another name=...")


def _play_missing(
    config: EvaluationConfig,
    folder: Path,
    console: Console,
    corpus: PreparedCorpus,
    chosen: Sequence[int],
    open_model: Callable[[EvaluationConfig], Backend],
    share: Share,
) -> tuple[dict[str, Any], dict[int, str]]:
    """Play this process's share of what has no record yet.

    Returns the backend's facts, and by question number what failed and why.
    """
    files, done = record_files(folder), _recorded(folder)
    missing = [index for index in chosen if index not in done]
    share.wait()  # every process has seen the same files before one writes
    backend = open_model(config)
    failed: dict[int, str] = {}
    try:
        if share.rank == 0:
            _note_backend(folder, backend.facts)
            _note_identity(folder, identity(config, corpus, chosen, backend.facts))
        if not missing:
            return backend.facts, failed
        settings = episode_settings(config, config.schema)
        first = 1 + max((int(path.stem) for path in files), default=-1)
        chunks, causes = shared_chunks(missing, max(1, config.batch // config.candidates), share), corpus.unstable()
        own = sum(len(chunk) for _, chunk in chunks)
        played = (len(chosen) - len(missing)) if share.count == 1 else 0
        with (
            ThreadPoolExecutor(TOOL_THREADS, thread_name_prefix="tools") as pool,
            ChunkProgress(console, (played + own) * config.candidates, played, config) as progress,
        ):
            for number, chunk in chunks:
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
                    write_records(folder, first + number, rows)
                failed |= lost
                progress.advance(rows, len(lost))
                if not rows:
                    break  # nothing works: what is left would fail too, one slow retry after the other
        for remark in backend.remarks():
            console.print(f"note: {remark}", markup=False, highlight=False, soft_wrap=True)
        return backend.facts, failed
    finally:
        backend.close()


def shared_chunks(missing: Sequence[int], most: int, share: Share) -> list[tuple[int, Sequence[int]]]:
    """The chunks that this process plays, of at most ``most`` questions, each with its number among all."""
    size = max(1, min(most, -(-len(missing) // share.count)))
    chunks = [missing[start : start + size] for start in range(0, len(missing), size)]
    return list(enumerate(chunks))[share.rank :: share.count]


def _recorded(folder: Path) -> set[int]:
    """Numbers of the questions that have records."""
    columns = [pq.read_table(path, columns=["index"]).column(0) for path in record_files(folder)]
    return {index for column in columns for index in column.to_pylist()}


def _lost_elsewhere(folder: Path, chosen: Sequence[int], failed: dict[int, str]) -> dict[int, str]:
    """Questions that another process should have played and could not."""
    missing = set(chosen) - _recorded(folder) - set(failed)
    return dict.fromkeys(missing, "another process could not play it")


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


def _note_identity(folder: Path, now: dict[str, Any]) -> None:
    """Keep what decides the figures; ConfigError where episodes are there that were played under another identity."""
    before = read_identity(folder)
    names = different_keys(before, now) if before is not None and record_files(folder) else []
    if before is not None and names:
        raise ConfigError(
            f"{folder} was begun as another measurement: {told([before, now], names)}; its episodes would not be "
            "alike: set another name=..."
        )
    _write_json(folder / IDENTITY, now)


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
    about = read_identity(folder)
    assert about is not None, "written before the first question was played"
    parameters, rows = config.parameters or facts.get("parameters"), read_records(folder)
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
        "identity": digest(about),
        "left_out": about["left_out"],
        "missing_share": missing(about["left_out"])[0],
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        **summarize(rows, parameters),
    }
    if (calibrated := write_calibration(folder, rows, summary["identity"])) is not None:
        summary["calibration"] = calibrated
    if config.corpus.name == "ehrsql":
        summary["abstention"] = abstention_scores(map(answered, rows))
    _write_json(folder / SUMMARY, summary)


def answered(row: dict[str, Any]) -> Answered:
    """An episode as EHRSQL scores it; what has no gold query is not asked (``corpus.ehrsql``)."""
    return Answered(True, row["sql"] is None or as_executed(row["sql"]) != ABSTAINS, bool(row["official"]))


def _write_json(path: Path, value: Any) -> None:
    write_whole(path, json.dumps(value, indent=1, ensure_ascii=False) + "\n")
