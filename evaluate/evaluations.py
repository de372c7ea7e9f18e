"""Evaluations as the tables see them: read from their folders, or built from rows, and grouped into policies.

A policy is what a table has one column or row of. Evaluations are of one policy where the key ``group`` names the same
(without it: the model's name). Within a policy, a benchmark and a size of the schema, different models are the seeds of
the policy; several evaluations of one model are read as one.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from sqale_grpo.evaluate.identity import IDENTITY, different_keys, of_config, told
from sqale_grpo.evaluate.published import published_name
from sqale_grpo.evaluate.records import CONFIG, FAILED, SUMMARY, read_records
from sqale_grpo.settings.check import ConfigError
from sqale_grpo.settings.load import RENAMED

DEMO_POLICY = ["demo", "policy"]  # the folder of the package that holds it
UNREAD = ("turns", "question", "gold_sql", "opened_tables", "tables")


@dataclass(frozen=True)
class Evaluation:
    """One evaluation. ``rows`` are those of ``evaluate.records``, empty unless ``state`` is ``finished``.

    ``benchmark`` and ``schema`` say what was asked (``schema``: gold, distractors:N, full, sampled); ``failed``
    questions got no answer, for a failure that was not the policy's: such an evaluation is not finished. ``state`` is
    ``finished``, ``unfinished`` or ``failed``: only the first is ever averaged. ``identity``: all that decides its
    figures beside the policy (``evaluate.identity``).
    """

    policy: str
    model: str
    benchmark: str
    schema: str
    rows: Sequence[dict[str, Any]] = field(default=(), repr=False)
    parameters: float | None = None
    failed: int = 0
    state: str = "finished"
    name: str = ""
    published: str | None = None
    identity: Mapping[str, Any] = field(default_factory=dict, repr=False)


def failed_run(policy: str, model: str, benchmark: str, schema: str) -> Evaluation:
    """What stands for a run that failed before it could be evaluated: tables show it and leave it out of every mean."""
    return Evaluation(policy, model, benchmark, schema, state="failed", name=model)


def find_evaluations(paths: Iterable[str | Path]) -> list[Path]:
    """Folders of evaluations: those given, those in ``evaluations/`` of given runs, those directly in given folders.

    ConfigError for a path that holds none.
    """
    found: list[Path] = []
    for path in map(Path, paths):
        inside = sorted(file.parent for pattern in ("*", "evaluations/*") for file in path.glob(f"{pattern}/{CONFIG}"))
        mine = [path] if is_evaluation(path) else [folder for folder in inside if is_evaluation(folder)]
        if not mine:
            raise ConfigError(
                f"no evaluation in {path}: give the folder of one (OUTPUT/NAME, with {CONFIG}), of a run that has "
                "evaluations/, or a folder of evaluations"
            )
        found += [folder for folder in mine if folder not in found]
    return found


def is_evaluation(folder: Path) -> bool:
    """Whether a folder is an evaluation's: its configuration says what answered."""
    return "backend" in _config(folder)


def _config(folder: Path) -> dict[str, Any]:
    try:
        config = yaml.safe_load((folder / CONFIG).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, yaml.YAMLError) as error:
        raise ConfigError(f"{folder / CONFIG} cannot be read: {error}") from error
    return config if isinstance(config, dict) else {}


def read_evaluation(folder: Path) -> Evaluation:
    """An evaluation from its folder; one without ``summary.json`` is unfinished. ConfigError for one that is broken."""
    config = _config(folder)
    model = str(config.get("model") or "")
    summary = read_json(folder / SUMMARY)
    if "tables" in config:
        raise ConfigError(f"{folder / CONFIG}: tables is now {RENAMED['tables']}; write the new word into this file")
    corpus = config.get("corpus") or {}
    return Evaluation(
        policy=str(config.get("group") or model_name(model, config)),
        model=model,
        benchmark=str(config.get("benchmark") or corpus.get("name") or ""),
        schema=str(config.get("schema") or ""),
        rows=read_records(folder, leave_out=UNREAD) if summary else (),
        parameters=(summary or {}).get("parameters"),
        failed=len(read_json(folder / FAILED) or ()),
        state="finished" if summary else "unfinished",
        name=folder.name,
        identity=read_json(folder / IDENTITY) or of_config(config),
        published=published_name(model) if config.get("backend") in ("transformers", "vllm", "openai") else None,
    )


def read_json(path: Path) -> Any:
    """What a JSON file holds, None where there is none. ConfigError for a broken one."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise ConfigError(f"{path} is broken ({error}); remove it and evaluate again") from error


def model_name(model: str, config: dict[str, Any]) -> str:
    """A model's short name: of a checkpoint its run's, of another folder or Hub name the last part."""
    if config.get("backend") in ("oracle", "empty", "no_rows"):
        return str(config["backend"])
    parts = [part for part in model.replace("\\", "/").split("/") if part] or ["?"]
    # What is above the demo's policy, or a checkpoint's number, says what it is.
    inside = len(parts) > 1 and (parts[-1].startswith("checkpoint-") or parts[-2:] == DEMO_POLICY)
    return parts[-2] if inside else parts[-1]


def read_evaluations(paths: Iterable[str | Path]) -> list[Evaluation]:
    """All evaluations that ``paths`` lead to, in order."""
    return [read_evaluation(folder) for folder in find_evaluations(paths)]


def policies(evaluations: Iterable[Evaluation]) -> list[str]:
    """Names of the policies, in the order in which they first come."""
    return list(dict.fromkeys(each.policy for each in evaluations))


def benchmarks(evaluations: Iterable[Evaluation]) -> list[str]:
    """Names of the benchmarks: the card's first and in its order, then others as they come."""
    order = ["sqale", "bird", "ehrsql"]
    found = list(dict.fromkeys(each.benchmark for each in evaluations))
    return [name for name in order if name in found] + [name for name in found if name not in order]


def sizes(evaluations: Iterable[Evaluation]) -> list[str]:
    """Schema sizes, the smallest first: gold, distractors by number, full, then what the sampler draws."""
    rank = {"gold": -1, "full": 1_000_000, "sampled": 1_000_001}
    found = {each.schema for each in evaluations}
    return sorted(found, key=lambda size: (rank.get(size) or _number(size), size))


def _number(size: str) -> int:
    digits = size.rpartition(":")[2]
    return int(digits) if digits.isdigit() else 0


def seeds_of(evaluations: Iterable[Evaluation], every: bool = False) -> list[list[dict[str, Any]]]:
    """Rows of each finished model, one list a seed: what ``evaluate.metrics`` takes.

    Those with a stable gold; with ``every`` the others too. ConfigError where they are not one measurement.
    """
    evaluations = [each for each in evaluations if each.state == "finished"]
    refuse_mixed(evaluations)
    models: dict[str, list[dict[str, Any]]] = {}
    for each in evaluations:
        models.setdefault(each.model, []).extend(row for row in each.rows if every or not row["unstable"])
    return [rows for rows in models.values() if rows]


def refuse_mixed(evaluations: Sequence[Evaluation]) -> None:
    """ConfigError where evaluations that a figure would average are not one measurement; it names the keys."""
    for each in evaluations[1:]:
        first = evaluations[0]
        names = different_keys(first.identity, each.identity)
        if names:
            which = f"{first.name or first.model} and {each.name or each.model}"
            raise ConfigError(
                f"{which} would be one figure of {each.policy} on {each.benchmark} ({each.schema}), and are not one "
                f"measurement: {told([first.identity, each.identity], names)}. Give one of them group=... or "
                "benchmark=... of its own, or name only one of the two folders"
            )
