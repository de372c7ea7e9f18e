"""Configuration and prompts files: by path, or by their name in the package (``recipe``, ``corpus/sqale``)."""

import difflib
import os
from pathlib import Path

from sqale_grpo.env.prompts import Prompts, load_prompts
from sqale_grpo.settings.check import ConfigError

CONFIGS = Path(__file__).resolve().parent.parent / "configs"
NAMES_SHOWN = 3


def find_config(word: str | Path) -> Path:
    """The configuration file that ``word`` means: a path, else a name in the package.

    A file wins over a name. ``configs/recipe.yaml`` is found from every folder, too. Raises ConfigError, which names
    the nearest files and names.
    """
    if is_file(word):
        return Path(word)
    packaged = CONFIGS / f"{_name(word, '.yaml')}.yaml"
    if is_file(packaged):
        return packaged
    if os.path.isdir(word):
        raise ConfigError(f"{word} is a folder, and a config file is wanted here; a model is named by model={word}")
    near = difflib.get_close_matches(_name(word, ".yaml"), config_names(), NAMES_SHOWN, cutoff=0.5)
    beside = difflib.get_close_matches(str(word), _files_beside(Path(word)), 1)
    hint = " or ".join([*beside, *near]) or f"one of {', '.join(config_names())}"
    raise ConfigError(
        f"no config file at {word}, and none of that name in the package; did you mean {hint}? An override is "
        "section.key=value"
    )


def find_prompts(path: str | None) -> Path | None:
    """The prompts file that ``env.prompts`` names: a path, else a file of the package; None for the project's own."""
    if path is None or is_file(path):
        return None if path is None else Path(path)
    packaged = CONFIGS / f"{_name(path, '.json')}.json"
    return packaged if is_file(packaged) else Path(path)


def read_prompts(path: str | None) -> Prompts:
    """The prompts that ``env.prompts`` names; ConfigError where it names no file of prompts."""
    try:
        return load_prompts(find_prompts(path))
    except (OSError, ValueError) as error:
        raise ConfigError(f"env.prompts: {error}") from error


def config_names() -> list[str]:
    """The names of all configurations in the package, sorted."""
    return sorted(path.relative_to(CONFIGS).with_suffix("").as_posix() for path in CONFIGS.rglob("*.yaml"))


def is_file(path: str | Path) -> bool:
    """Whether there is such a file; an override may be longer than any file's name."""
    return os.path.isfile(path)


def _name(word: str | Path, suffix: str) -> str:
    return str(word).removeprefix("./").removeprefix("configs/").removesuffix(suffix)


def _files_beside(path: Path) -> list[str]:
    return sorted(map(str, path.parent.glob("*.yaml"))) if os.path.isdir(path.parent) else []
