"""What a configuration must satisfy beyond its types, and what must not change when a run is resumed."""

import dataclasses
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

from sqale_grpo.corpus.demo import MOST_TABLES
from sqale_grpo.env.errors import UserError
from sqale_grpo.settings.keys import Config

# Keys that leave the experiment as it is: how often it is saved, where it runs, what is logged and evaluated.
FREE_ON_RESUME = re.compile(
    r"output|corpus\.source|env\.workers|evaluate\..*|model\.gradient_checkpointing|rollout\.(backend|vllm_.*)"
    r"|train\.(micro_batch|save_updates|keep_checkpoints|push_.*|log_to|log_episodes_updates|threads|use_cpu)"
)

Relation = tuple[str, bool, str]  # key, does it hold, what to say
DEMO_PAIRS = ("demo_tables", "demo_schemas", "demo_questions")


class ConfigError(UserError, ValueError):
    """A configuration that cannot be run; the text names the key, its origin and the fix."""


def check_config(config: Config, origins: Mapping[str, str] | None = None) -> None:
    """Raise ConfigError at the first key out of its bounds, or the first two keys that contradict each other.

    ``origins`` maps a dotted key to the file or override that set it, for the error text.
    """
    check_bounds(config, origins or {})
    check_relations(_relations(config), origins or {})


def check_bounds(config: Any, origins: Mapping[str, str]) -> None:
    """Raise ConfigError at the first key out of its bounds; ``config`` is a dataclass of keys and sections."""
    for section in dataclasses.fields(config):
        value = getattr(config, section.name)
        if dataclasses.is_dataclass(value):
            for inner in dataclasses.fields(value):
                _check_bounds(f"{section.name}.{inner.name}", getattr(value, inner.name), inner.metadata, origins)
        else:
            _check_bounds(section.name, value, section.metadata, origins)


def check_relations(relations: Iterable[Relation], origins: Mapping[str, str]) -> None:
    """Raise ConfigError at the first rule that does not hold."""
    for name, holds, text in relations:
        if not holds:
            raise ConfigError(f"{_where(name, origins)}{name} {text}")


def check_resume(
    saved: Mapping[str, Any], now: Mapping[str, Any], checkpoint: str, free: re.Pattern[str] = FREE_ON_RESUME
) -> None:
    """Raise ConfigError when a checkpoint belongs to another experiment; both mappings are ``flatten(config)``.

    Keys that do not change what is learned (checkpoint frequency, trackers, processes, micro-batch) may differ: those
    that ``free`` matches.
    """
    changed = [name for name in now if saved.get(name) != now[name] and not free.fullmatch(name)]
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


def _relations(config: Config) -> list[Relation]:
    """Every rule that a key's own bounds cannot express."""
    sampler, curriculum, rollout, evaluate = config.sampler, config.curriculum, config.rollout, config.evaluate
    cuts = curriculum.percentiles
    return [
        ("name", is_folder_name(config.name), f"must be a plain folder name, not {config.name!r}"),
        (
            "sampler.max_tables",
            sampler.max_tables >= sampler.min_tables,
            f"({sampler.max_tables}) must not be under sampler.min_tables ({sampler.min_tables})",
        ),
        (
            "curriculum.percentiles",
            len(cuts) == 3 and all(0 < cut < 100 for cut in cuts) and cuts == sorted(set(cuts)),
            f"must be three rising numbers between 0 and 100, not {cuts}",
        ),
        (
            "reward.gold_seconds",
            config.reward.gold_seconds >= config.env.query_seconds,
            f"({config.reward.gold_seconds:g}) must not be under env.query_seconds ({config.env.query_seconds:g})",
        ),
        *demo_relations(config.corpus),
        (
            "train.push_every",
            config.train.push_every % config.train.save_updates == 0,
            f"({config.train.push_every}) must be a multiple of train.save_updates ({config.train.save_updates})",
        ),
        (
            "train.push_repo",
            not config.train.push_every or bool(config.train.push_repo),
            "must name a repository, OWNER/NAME, where train.push_every is set",
        ),
        ("curriculum.start", *_mixture(curriculum.start)),
        ("curriculum.end", *_mixture(curriculum.end)),
        (
            "rollout.max_episode_tokens",
            rollout.max_episode_tokens > rollout.max_turn_tokens,
            f"({rollout.max_episode_tokens}) must be over rollout.max_turn_tokens ({rollout.max_turn_tokens})",
        ),
        (
            "rollout.vllm_server",
            re.fullmatch(r"https?://[^\s/]+(/\S*[^\s/])?", rollout.vllm_server) is not None,
            f"must be an address like http://HOST:8000, without a slash at its end, not {rollout.vllm_server!r}",
        ),
        (
            "evaluate.max_episode_tokens",
            evaluate.max_episode_tokens > evaluate.max_turn_tokens,
            f"({evaluate.max_episode_tokens}) must be over evaluate.max_turn_tokens ({evaluate.max_turn_tokens})",
        ),
        (
            "evaluate.tables",
            re.fullmatch(r"sampled|gold|full|distractors:\d+", evaluate.tables) is not None,
            f"must be sampled, gold, distractors:N or full, not {evaluate.tables!r}",
        ),
        (
            "policy.layers",
            re.fullmatch(r"[lf]+", config.policy.layers) is not None,
            f"must be a word of the letters l and f, not {config.policy.layers!r}",
        ),
    ]


def demo_relations(corpus: Any) -> list[Relation]:
    """The rules of the demo corpus' shape, in a run's and in an evaluation's section ``corpus``."""
    pairs = {name: getattr(corpus, name) for name in DEMO_PAIRS}
    return [
        *((f"corpus.{name}", len(pair) == 2, f"must be two numbers, not {pair}") for name, pair in pairs.items()),
        (
            "corpus.demo_tables",
            corpus.demo_tables == sorted(corpus.demo_tables) and corpus.demo_tables[-1] <= MOST_TABLES,
            f"must rise and not go over {MOST_TABLES}, for which there are names, not {corpus.demo_tables}",
        ),
    ]


def _mixture(shares: list[float]) -> tuple[bool, str]:
    holds = len(shares) == 4 and all(share >= 0 for share in shares) and math.isclose(sum(shares), 1, abs_tol=1e-6)
    return holds, f"must be four shares that add up to 1, not {shares}"


def is_folder_name(name: str) -> bool:
    """Whether ``name`` names one folder, with no way out of its parent."""
    fits = len(name.encode()) <= 255  # what file systems take
    return fits and bool(name.strip()) and name not in (".", "..") and not set(name) & set("/\\\0")


def _where(name: str, origins: Mapping[str, str]) -> str:
    return f"{origins[name]}: " if name in origins else ""
