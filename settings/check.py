"""What a configuration must satisfy beyond its types, and what must not change when a run is resumed."""

import dataclasses
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from sqale_grpo.env.errors import ConfigError
from sqale_grpo.settings.sections import Rule

# Keys that leave the experiment as it is: how often it is saved, where it runs, what is logged and evaluated.
FREE_ON_RESUME = re.compile(
    r"output|corpus\.source|env\.workers|evaluate\..*|model\.gradient_checkpointing|rollout\.(backend|vllm_.*)"
    r"|train\.(micro_batch|save_updates|keep_checkpoints|preflight|heal|push_.*|log_to|log_episodes_updates|threads|use_cpu)"
)


LENGTH = "train.updates"


def check_config(config: Any, origins: Mapping[str, str] | None = None) -> None:
    """Raise ConfigError at the first key out of its bounds, or the first two keys that contradict each other.

    ``config`` is a dataclass of keys and sections, a run's or an evaluation's; it and its sections have the rules that
    bounds cannot express (``rules``). ``origins`` maps a dotted key to the file or override that set it, for the error
    text.
    """
    origins = origins or {}
    for name, value, bounds in _keys(config):
        _check_bounds(name, value, bounds, origins)
    for name, holds, text in _rules(config):
        if not holds:
            raise ConfigError(f"{_where(name, origins)}{name} {text}")


def _keys(config: Any) -> Iterator[tuple[str, Any, Mapping[str, Any]]]:
    """Dotted key, value and bounds of every key."""
    for outer in dataclasses.fields(config):
        value = getattr(config, outer.name)
        if not dataclasses.is_dataclass(value):
            yield outer.name, value, outer.metadata
            continue
        for inner in dataclasses.fields(value):
            yield f"{outer.name}.{inner.name}", getattr(value, inner.name), inner.metadata


def _rules(config: Any) -> Iterator[Rule]:
    """The rules of the configuration and of its sections, keys dotted."""
    yield from config.rules()
    for outer in dataclasses.fields(config):
        section = getattr(config, outer.name)
        if hasattr(section, "rules"):
            yield from ((f"{outer.name}.{name}", holds, text) for name, holds, text in section.rules(outer.name))


def check_resume(
    saved: Mapping[str, Any], now: Mapping[str, Any], checkpoint: str, free: re.Pattern[str] = FREE_ON_RESUME
) -> None:
    """Raise ConfigError when a checkpoint belongs to another experiment; both mappings are ``flatten(config)``.

    Keys that do not change what is learned (checkpoint frequency, trackers, processes, micro-batch) may differ: those
    that ``free`` matches. ``train.updates`` may grow: the run is extended.
    """
    changed = [name for name in now if saved.get(name) != now[name] and not free.fullmatch(name)]
    if now.get(LENGTH, 0) > (saved.get(LENGTH) or math.inf):
        changed.remove(LENGTH)
    if changed:
        listed = "; ".join(f"{name} was {saved.get(name)!r}, is {now[name]!r}" for name in changed)
        raise ConfigError(
            f"{checkpoint} belongs to another configuration: {listed}. "
            "Restore these values to resume, or set another name=... to start a new run."
        )


def _check_bounds(name: str, value: Any, rules: Mapping[str, Any], origins: Mapping[str, str]) -> None:
    if value is None:
        return
    for item in value if isinstance(value, list) else [value]:
        problem = _problem(item, rules)
        if problem:
            raise ConfigError(f"{_where(name, origins)}{name} must be {problem}, not {item!r}")


def _problem(value: Any, rules: Mapping[str, Any]) -> str | None:
    if isinstance(value, float) and not math.isfinite(value):
        return "a finite number"
    if "choices" in rules and value not in rules["choices"]:
        return "one of " + ", ".join(rules["choices"])
    if "low" in rules and value < rules["low"]:
        return f"at least {rules['low']}"
    if "above" in rules and value <= rules["above"]:
        return f"above {rules['above']}"
    if "high" in rules and value > rules["high"]:
        return f"at most {rules['high']}"
    return None


def _where(name: str, origins: Mapping[str, str]) -> str:
    return f"{origins[name]}: " if name in origins else ""
