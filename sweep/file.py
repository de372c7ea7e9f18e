"""Reading a W&B sweep file: each combination of its parameters as a command and a checked configuration.

The part of W&B's format that a grid needs: ``program``, ``method: grid``, ``command`` with its macros, ``parameters``
with ``value`` or ``values``. Commands come out as W&B's agent would start them.
"""

import hashlib
import itertools
import os
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from sqale_grpo.settings.check import ConfigError
from sqale_grpo.settings.keys import Config
from sqale_grpo.settings.load import load_words
from sqale_grpo.settings.run_folder import run_folder

COMMAND = ("${env}", "${interpreter}", "${program}", "${args}")  # W&B's own default
ARGUMENTS = "${args_no_hyphens}"
TRACKERS = "train.log_to"
LONGEST_NAME = 120  # of a run; file systems take 255 bytes
KNOWN = ("program", "method", "command", "parameters", "name", "description", "project", "entity", "metric", "run_cap")
_VARIABLE = re.compile(r"\$\{envvar:([A-Z0-9_]*)\}")


@dataclass(frozen=True)
class SweepRun:
    """One combination: its parameters, the command that trains it, and the configuration that the command gives."""

    parameters: dict[str, Any]
    command: tuple[str, ...]
    config: Config

    @property
    def name(self) -> str:
        """The run's name; equal to its folder's."""
        return self.config.name

    @property
    def folder(self) -> Path:
        """The run's folder."""
        return run_folder(self.config)


def read_sweep(path: Path, overrides: Sequence[str] = ()) -> list[SweepRun]:
    """The runs of the sweep file at ``path``, the first parameter varying slowest; ``overrides`` hold for all of them.

    Trackers are off unless an override names them: this is the way to run without W&B. Raises ConfigError, naming
    file and place, for what is no grid, or a combination that is no valid configuration.
    """
    sweep = _read(path)
    values = {name: _values(path, name, choice) for name, choice in sweep["parameters"].items()}
    varying = [name for name, listed in values.items() if len(listed) > 1]
    fixed = [text for text in overrides if text.partition("=")[0] in varying and not text.startswith("config=")]
    if fixed:
        raise ConfigError(
            f"{path} varies {fixed[0].partition('=')[0]}, and the override {fixed[0]!r} would make its runs the same; "
            "leave it out, or change the file"
        )
    runs = []
    for combination in itertools.product(*values.values()):
        chosen = dict(zip(values, combination, strict=True))
        stated = [word for word in _command(path, sweep, chosen) if not word.startswith(f"{TRACKERS}=")]
        command = [*stated, f"{TRACKERS}=[]", *overrides]
        words = _words(path, command)
        if not any(word.startswith("name=") for word in words):
            command.append(f"name={_name({name: chosen[name] for name in varying} or chosen)}")
        try:
            config = load_words(_words(path, command))
        except ConfigError as error:
            raise ConfigError(f"{path}, run with {describe(chosen)}: {error}") from error
        runs.append(SweepRun({name: chosen[name] for name in varying}, tuple(command), config))
    _check_distinct(path, runs)
    return runs


def describe(parameters: dict[str, Any]) -> str:
    """Parameters as a person reads them."""
    return ", ".join(f"{name}={value}" for name, value in parameters.items()) or "no parameters"


def _read(path: Path) -> dict[str, Any]:
    if not path.is_file():
        others = sorted(str(other) for other in Path("configs/sweep").glob("*.yaml"))
        raise ConfigError(f"no sweep file at {path}; there are {', '.join(others) or 'none in configs/sweep'}")
    try:
        sweep = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is no valid YAML: {' '.join(str(error).split())}") from error
    if not isinstance(sweep, dict):
        raise ConfigError(f"{path} holds no mapping of keys to values at its top")
    unknown = sorted(set(sweep) - set(KNOWN))
    if unknown:
        raise ConfigError(f"{path}: unknown key {unknown[0]!r}; a sweep file here has {', '.join(KNOWN)}")
    if sweep.get("method") != "grid":
        raise ConfigError(f"{path}: method is {sweep.get('method')!r}; only grid is run without W&B")
    if not isinstance(sweep.get("parameters"), dict) or not sweep["parameters"]:
        raise ConfigError(f"{path}: parameters must map at least one name to value: or values:")
    other = [name for name in sweep["parameters"] if not isinstance(name, str)]
    if other:
        raise ConfigError(f"{path}: the parameter {other[0]!r} is no name; a parameter is a key, such as seed")
    if not isinstance(sweep.get("command") or [], list):
        raise ConfigError(f"{path}: command must be a list of words, not {sweep['command']!r}")
    return sweep


def _values(path: Path, name: str, choice: Any) -> list[Any]:
    if isinstance(choice, dict) and set(choice) == {"value"}:
        values = [choice["value"]]
    elif isinstance(choice, dict) and set(choice) == {"values"} and isinstance(choice["values"], list):
        values = choice["values"]
    else:
        raise ConfigError(f"{path}: parameter {name!r} must have value: or values: [...], not {choice!r}")
    if not values or None in values:
        raise ConfigError(
            f"{path}: parameter {name!r} must have a value; W&B hands on null as the text None: leave the key out"
        )
    return values


def _command(path: Path, sweep: dict[str, Any], chosen: dict[str, Any]) -> Iterator[str]:
    """The words of the command, macros filled in as ``wandb agent`` does."""
    macros = {
        "${env}": [],
        "${interpreter}": [sys.executable],
        "${program}": [str(sweep.get("program"))],
        ARGUMENTS: [f"{name}={value}" for name, value in chosen.items()],
    }
    words = [str(word) for word in sweep.get("command") or COMMAND]
    if ARGUMENTS not in words:
        raise ConfigError(f"{path}: command has no {ARGUMENTS}; overrides here have the form section.key=value")
    for word in words:
        word = _VARIABLE.sub(lambda found: os.environ.get(found[1], found[1]), word)
        if word.startswith("${") and word.endswith("}") and word not in macros:
            raise ConfigError(f"{path}: command has {word}; the macros here are {', '.join(macros)}")
        yield from macros.get(word, [word])


def _words(path: Path, command: Sequence[str]) -> list[str]:
    """The configuration files and overrides within the command: what follows ``-m sqale_grpo.train``."""
    for position, (flag, module) in enumerate(itertools.pairwise(command)):
        if (flag, module) == ("-m", "sqale_grpo.train"):
            return [word for word in command[position + 2 :] if not word.startswith("-")]
    raise ConfigError(
        f"{path}: command must contain `-m sqale_grpo.train`, so that its runs are training runs; it is {command}"
    )


def _name(parameters: dict[str, Any]) -> str:
    parts = []
    for name, value in parameters.items():
        short = Path(str(value)).stem if name == "config" else f"{name.rpartition('.')[2]}{value}"
        parts.append(re.sub(r"[^\w.+-]+", "_", short))
    name = "-".join(parts)
    if len(name.encode()) > LONGEST_NAME:
        name = f"{name[: LONGEST_NAME // 2]}-{hashlib.sha256(name.encode()).hexdigest()[:12]}"
    return name


def _check_distinct(path: Path, runs: Sequence[SweepRun]) -> None:
    seen: dict[Path, SweepRun] = {}
    for run in runs:
        other = seen.setdefault(run.folder, run)
        if other is not run:
            raise ConfigError(
                f"{path}: the runs with {describe(other.parameters)} and {describe(run.parameters)} would share the "
                f"folder {run.folder}; let name= tell them apart, as in name=${{corpus.name}}-seed${{seed}}"
            )
