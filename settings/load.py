"""Reading a configuration: YAML files merged left to right, then overrides, each key checked where it stands."""

import dataclasses
import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import yaml
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from sqale_grpo.env.errors import first_line
from sqale_grpo.env.files import write_whole
from sqale_grpo.settings.check import ConfigError, check_config
from sqale_grpo.settings.files import find_config, is_file
from sqale_grpo.settings.keys import Config

C = TypeVar("C")
Keys = Mapping[str, dataclasses.Field[Any]]
# Keys and sections of an earlier version, and what they are called now.
RENAMED = {
    "train.max_steps": "train.updates",
    "tables": "schema",
    "evaluate.tables": "evaluate.schema",
    "policy": "demo_policy",
}
FILE_WORD = "config"  # config=FILE on a command line adds a file


def known_keys(kind: type = Config) -> dict[str, dataclasses.Field[Any]]:
    """Every dotted key of a configuration with its dataclass field, in the order of the dataclasses.

    ``kind`` is a dataclass of keys and of sections, which are dataclasses of keys: a run's, or an evaluation's.
    """
    keys: dict[str, dataclasses.Field[Any]] = {}
    for outer in dataclasses.fields(kind):
        section = outer.type
        if dataclasses.is_dataclass(section):
            keys |= {f"{outer.name}.{inner.name}": inner for inner in dataclasses.fields(section)}
        else:
            keys[outer.name] = outer
    return keys


def load_config(files: Sequence[str | Path], overrides: Sequence[str] = ()) -> Config:
    """The configuration of a run that the files and ``section.key=value`` overrides give, later ones winning.

    Lists are replaced whole; with ``curriculum.scale_to_run`` counts of updates are those of this run. Raises
    ConfigError, naming the file or override, the key and the fix, for an unknown key, a value of the wrong type or out
    of bounds, a file that is missing or no YAML mapping.
    """
    return load_as(Config, check_config, files, overrides).scaled()


def load_as(
    kind: type[C],
    check: Callable[[C, Mapping[str, str]], None],
    files: Sequence[str | Path],
    overrides: Sequence[str] = (),
    usual: Mapping[str, Any] | None = None,
) -> C:
    """The same for any dataclass of keys; ``check(config, origins)`` holds it to its bounds and relations.

    ``usual``: dotted keys with values that stand in for the defaults.
    """
    merged = OmegaConf.structured(kind)
    keys = known_keys(kind)
    origins: dict[str, str] = {}
    for name, value in (usual or {}).items():
        OmegaConf.update(merged, name, value, merge=False)
    layers = [(str(path), _read_file(find_config(path))) for path in files]
    layers += [(f"override {text!r}", _read_override(text)) for text in overrides]
    for origin, values in layers:
        for name, value in _leaves(values, origin, keys):
            _assign(merged, name, value, origin, keys)
            origins[name] = origin
    try:
        config = OmegaConf.to_object(merged)
    except OmegaConfBaseException as error:
        raise ConfigError(f"the configuration cannot be resolved: {first_line(error)}") from error
    assert isinstance(config, kind)
    check(config, origins)
    return config


def load_words(words: Sequence[str]) -> Config:
    """The configuration of a command line: file names, ``config=FILE`` for one more, and overrides, which come last."""
    files, overrides = split_words(words)
    return load_config(files, overrides)


def split_words(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """(files, overrides) of a command line, each in their order.

    ``config=FILE`` is a file too, after those before it: so a parameter of a sweep can choose one.
    """
    files, overrides = [], []
    for word in words:
        name, equals, value = word.partition("=")
        if name == FILE_WORD and equals:
            files.append(value)
        elif not equals or is_file(word):
            files.append(word)
        else:
            overrides.append(word)
    return files, overrides


def to_yaml(config: Any) -> str:
    """The whole configuration as YAML text that ``load_config`` reads back to an equal one."""
    return OmegaConf.to_yaml(OmegaConf.structured(config))


def save_config(config: Any, path: Path) -> None:
    """Write the whole configuration; a reader never sees half of it."""
    write_whole(path, to_yaml(config))


def flatten(config: Any) -> dict[str, Any]:
    """Dotted key -> value of every key."""
    keys = known_keys(type(config))
    return {name: value for name, value in _leaves(OmegaConf.structured(config), "config", keys)}


def _read_file(path: Path) -> DictConfig:
    try:
        values = OmegaConf.load(path)
    except (yaml.YAMLError, UnicodeDecodeError, OSError) as error:
        raise ConfigError(f"{path} is no valid YAML: {' '.join(str(error).split())}") from error
    if not isinstance(values, DictConfig):
        raise ConfigError(f"{path} holds no mapping of keys to values at its top")
    return values


def _read_override(text: str) -> DictConfig:
    name, equals, _ = text.partition("=")
    if not equals or not name.strip():
        raise ConfigError(f"override {text!r} has not the form section.key=value")
    try:
        return OmegaConf.from_dotlist([text])
    except (yaml.YAMLError, OmegaConfBaseException) as error:
        raise ConfigError(f"override {text!r} cannot be read: {first_line(error)}") from error


def _leaves(values: DictConfig, origin: str, keys: Keys, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """(dotted key, value) of every value; raises ConfigError at a key or section that is not known."""
    # items_ex leaves interpolations such as ${seed} as they stand, for the merged configuration to resolve.
    for raw, value in values.items_ex(resolve=False):
        name = f"{prefix}{raw!s}"
        now = RENAMED.get(name)
        if name in keys:
            yield name, OmegaConf.to_container(value) if OmegaConf.is_config(value) else value
        elif now is not None and _is_known(now, keys):
            raise ConfigError(f"{origin}: {name} is now {now}")
        elif not _is_known(name, keys):
            raise ConfigError(f"{origin}: unknown key {name!r}; {_nearest(name, keys)}")
        elif isinstance(value, DictConfig):
            yield from _leaves(value, origin, keys, f"{name}.")
        else:
            raise ConfigError(f"{origin}: {name!r} is a section of keys, not a value; {_list_section(name, keys)}")


def _is_known(name: str, keys: Keys) -> bool:
    """Whether ``name`` is a key or a section."""
    return name in keys or any(known.startswith(f"{name}.") for known in keys)


def _nearest(name: str, keys: Keys) -> str:
    section, _, leaf = name.rpartition(".")
    by_leaf = [known for known in keys if known.rpartition(".")[2] == leaf]
    near = by_leaf or difflib.get_close_matches(name, list(keys), n=1, cutoff=0.7)
    if near:
        return "did you mean " + " or ".join(repr(known) for known in near) + "?"
    return _list_section(section, keys)


def _list_section(section: str, keys: Keys) -> str:
    inner = [known for known in keys if known.startswith(f"{section}.")]
    if section and inner:
        return f"the keys of {section!r} are " + ", ".join(known.rpartition(".")[2] for known in inner)
    return "the sections are " + ", ".join(dict.fromkeys(known.partition(".")[0] for known in keys))


def _assign(merged: DictConfig, name: str, value: Any, origin: str, keys: Keys) -> None:
    try:
        OmegaConf.update(merged, name, value, merge=False)
    except OmegaConfBaseException as error:
        if isinstance(value, Mapping):
            inner = ", ".join(f"{name}.{key}" for key in value)
            raise ConfigError(f"{origin}: {name} is one value, and there is no {inner}: write {name}=...") from error
        wanted = keys[name].type
        text = wanted.__name__ if isinstance(wanted, type) and wanted.__module__ == "builtins" else str(wanted)
        raise ConfigError(f"{origin}: {name} must be {text}, not {value!r}") from error
