"""What a folder holds: a training run, with the evaluations that belong to it, or an evaluation by itself."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from sqale_grpo.env.errors import UserError
from sqale_grpo.rollout.held_out import read_held_out
from sqale_grpo.rollout.record import METRICS, read_metrics
from sqale_grpo.settings.check import ConfigError
from sqale_grpo.settings.evaluation import EvaluationConfig, load_evaluation
from sqale_grpo.settings.keys import Config
from sqale_grpo.settings.load import load_config
from sqale_grpo.settings.run_folder import BREAKS, CONFIG, EPISODES

SUMMARY = "summary.json"
EVALUATIONS = "evaluations"


class ReportError(UserError):
    """A folder that cannot be reported on; the message says which, why, and what would do."""


@dataclass(frozen=True)
class EvaluationFolder:
    """An evaluation. ``summary`` is None until it is finished, ``config`` where its keys are not known any more."""

    path: Path
    name: str
    summary: dict[str, Any] | None
    config: EvaluationConfig | None
    files: tuple[Path, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class RunFolder:
    """A training run. ``metrics``: one dict an update, rising; ``held_out``: one each time its held-out questions were
    played; ``notes``: what could not be read, for the reader.

    ``config`` is None where config.yaml is of a version whose keys are not known any more.
    """

    path: Path
    name: str
    config: Config | None
    metrics: tuple[dict[str, Any], ...]
    files: tuple[Path, ...]
    evaluations: tuple[EvaluationFolder, ...]
    notes: tuple[str, ...]
    held_out: tuple[dict[str, Any], ...] = ()


def open_folders(paths: Iterable[Path]) -> list[RunFolder | EvaluationFolder]:
    """Each path's run or evaluation, under names that differ. Raises ReportError for a folder that is neither."""
    paths = list(dict.fromkeys(path.resolve() for path in paths))
    names = distinct_names(paths)
    return [open_folder(path, name) for path, name in zip(paths, names, strict=True)]


def open_folder(path: Path, name: str | None = None) -> RunFolder | EvaluationFolder:
    """The run or evaluation in ``path``. Raises ReportError where there is neither."""
    name = name or path.name
    if not path.is_dir():
        raise ReportError(f"there is no folder {path}: name a run's folder, OUTPUT/NAME of its configuration")
    if not (path / CONFIG).is_file():
        inner = sorted(p.parent.name for p in path.glob(f"*/{CONFIG}"))
        hint = f"; did you mean {path / inner[0]}?" if inner else "; name a run's folder, OUTPUT/NAME"
        raise ReportError(f"{path} is no run folder: it holds no {CONFIG}{hint}")
    settings = _settings(path / CONFIG)
    # A configuration of training has a section `train`; an evaluation's has none.
    return _open_run(path, name) if "train" in settings else _open_evaluation(path, name)


def distinct_names(paths: list[Path]) -> list[str]:
    """The folders' names, with as many parents in front as it takes to tell them apart."""
    for parts in range(1, max((len(path.parts) for path in paths), default=1) + 1):
        names = ["/".join(path.parts[-parts:]) for path in paths]
        if len(set(names)) == len(names):
            return names
    return [str(path) for path in paths]


def _open_run(path: Path, name: str) -> RunFolder:
    notes = healed_breaks(path)
    config: Config | None = None
    try:
        config = load_config([path / CONFIG])
    except ConfigError as error:
        notes.append(f"{CONFIG} cannot be read, so planned curves and databases are missing: {error}")
    metrics, damaged = read_metrics(path / METRICS)
    files = episode_files(path)
    if not files and not metrics:
        notes.append("its first update is not finished yet: there is nothing to show so far")
    inner = sorted(p.parent for p in (path / EVALUATIONS).glob(f"*/{CONFIG}"))
    evaluations = sorted((_open_evaluation(p, f"{name}/{p.name}") for p in inner), key=_made)
    return RunFolder(
        path=path,
        name=name,
        config=config,
        metrics=tuple(metrics),
        files=files,
        evaluations=tuple(evaluations),
        notes=(*notes, *damaged),
        held_out=tuple(read_held_out(path)),
    )


def healed_breaks(path: Path) -> list[str]:
    """A sentence for each break of a run that was healed (``train.heal``)."""
    notes = []
    for file in sorted((path / BREAKS).glob("*.json")):
        try:
            entry = json.loads(file.read_text(encoding="utf-8"))
            left = "; the update was left out" if entry["left_out"] else ""
            notes.append(f"update {entry['update']} broke ({entry['what']}): back to {entry['checkpoint']}{left}")
        except (ValueError, LookupError, TypeError):
            notes.append(f"{BREAKS}/{file.name} is damaged and was left out")
    return notes


def _made(evaluation: EvaluationFolder) -> tuple[bool, str, float]:
    """For the order in which evaluations were made, by day, then by their files; unfinished ones come last."""
    if evaluation.summary is None:
        return True, "", 0.0
    return False, str(evaluation.summary.get("date", "")), (evaluation.path / SUMMARY).stat().st_mtime


def _open_evaluation(path: Path, name: str) -> EvaluationFolder:
    summary, config, notes = None, None, []
    try:
        config = load_evaluation([path / CONFIG])
    except ConfigError as error:
        notes.append(f"{CONFIG} cannot be read, so its databases are missing: {error}")
    if (path / SUMMARY).is_file():
        try:
            summary = json.loads((path / SUMMARY).read_text(encoding="utf-8"))
        except (ValueError, RecursionError):
            summary = None
        if not isinstance(summary, dict):
            summary = None
            notes.append(f"{SUMMARY} is damaged and was left out")
    else:
        notes.append(f"the evaluation is not finished: {SUMMARY} comes at its end")
    return EvaluationFolder(path, name, summary, config, episode_files(path), tuple(notes))


def episode_files(path: Path) -> tuple[Path, ...]:
    """The parquet files of a folder's episodes, in the order of their numbers."""
    return tuple(sorted((path / EPISODES).glob("*.parquet")))


def _settings(path: Path) -> dict[str, Any]:
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ReportError(f"{path} is no valid YAML: {' '.join(str(error).split())}") from error
    if not isinstance(values, dict):
        raise ReportError(f"{path} holds no configuration; name a run's folder, OUTPUT/NAME")
    return values
