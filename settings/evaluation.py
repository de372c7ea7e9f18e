"""Configuration of an evaluation: every key, with its default, its meaning and where the value comes from.

Read like a run's (``settings.load``), from the same kinds of sections. Imports no torch.
"""

import dataclasses
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqale_grpo.settings.check import ConfigError, check_config
from sqale_grpo.settings.load import load_as
from sqale_grpo.settings.run_folder import CONFIG
from sqale_grpo.settings.sections import (
    DTYPES,
    AskedConfig,
    CorpusConfig,
    DeviceConfig,
    EvaluationEnv,
    RewardConfig,
    Rule,
    SamplerConfig,
    SamplingConfig,
    gold_rules,
    is_folder_name,
    key,
)

# A model in three places, and four answers that check the harness itself.
BACKENDS = ("transformers", "vllm", "openai", "oracle", "empty", "no_rows")
APIS = ("auto", "completions", "chat")
EVALUATIONS = "evaluations"  # folder of the evaluations of a run
CALIBRATION = "calibration.json"  # in the folder of an evaluation with several candidates, and in an export
SPLITS = {"bird": "dev"}  # the split that a corpus is evaluated on, where it is not test
# Keys that leave the answers as they are: where the evaluation lies, and what it runs on.
FREE_ON_RESTART = re.compile(
    r"output|group|env\.workers|local\.(vllm_memory_share|threads|use_cpu)"
    r"|server\.(url|key_variable|concurrency|timeout_seconds|retries)"
)

INTRO = """# Configuration of an evaluation

Every key of `sqale-grpo evaluate`. Files are merged left to right, then `key=value` overrides; a key that does not
exist is an error that names the nearest one. This page is printed by `sqale-grpo evaluate --keys`, and a test holds it
to the code. Sources as in [Configuration](configuration.md).
"""


@dataclass
class LocalConfig(DeviceConfig):
    """A model on this machine: backends transformers and vllm."""

    dtype: str = key("bfloat16", "assumption", "number format of the weights in transformers", choices=DTYPES)
    vllm_memory_share: float = key(0.85, "ours", "share of the GPU that vLLM takes", above=0, high=1)
    vllm_seeded: bool = key(
        True,
        "ours",
        "vLLM draws by question, so that a restart repeats it; false caches prefixes between turns instead",
    )


@dataclass
class ServerConfig:
    """A model behind an OpenAI-compatible server: backend openai."""

    url: str = key("http://127.0.0.1:8000/v1", "ours", "address of the server, with its /v1")
    api: str = key(
        "auto", "ours", "completions: the raw prompt; chat: messages; auto: the first that works", choices=APIS
    )
    tokenizer: str | None = key(
        None, "ours", "folder or Hub name of the model's tokenizer, for the raw prompt; null: `model` if it is a folder"
    )
    key_variable: str = key("OPENAI_API_KEY", "ours", "environment variable that holds the key; unset sends none")
    concurrency: int = key(16, "ours", "requests in flight", low=1)
    timeout_seconds: float = key(600.0, "ours", "seconds to wait for one answer", above=0)
    retries: int = key(6, "ours", "tries after the first, at growing distances", low=0)

    def rules(self, at: str) -> list[Rule]:
        """Of the address."""
        return [
            (
                "url",
                re.fullmatch(r"https?://[^\s/@?]+[^\s@?]*", self.url) is not None,
                "must be an http(s) address without a user or a key in it; the key goes into the environment variable "
                f"that {at}.key_variable names",
            )
        ]


@dataclass
class EvaluationConfig(AskedConfig):
    """A whole evaluation."""

    name: str | None = key(None, "ours", "its folder is OUTPUT/NAME; null makes a name of model, benchmark and schema")
    seed: int = key(42, "assumption", "seed of the choice of questions, of phrasings, tables and sampling", low=0)
    output: str | None = key(
        None, "ours", "folder in which evaluations lie; null: `evaluations` in the run of the model, else in runs/"
    )
    model: str = key(
        "Qwen/Qwen3.5-2B", "card", "model folder, run folder (its newest checkpoint), Hub name, or the server's name"
    )
    parameters: float | None = key(
        None, "ours", "parameters of a server's model, for TFLOPs a question; null: counted where it is local", above=0
    )
    enable_thinking: bool = key(True, "card", "open every turn with <think>, as the chat template does when asked to")
    backend: str = key(
        "transformers", "ours", "what answers; oracle, empty and no_rows check the harness itself", choices=BACKENDS
    )
    group: str | None = key(
        None, "ours", "name of the policy in tables; policies of several training seeds share it; null: the model's"
    )
    benchmark: str | None = key(
        None, "ours", "name of the benchmark in tables; null: the corpus, with a split or bands that are not the card's"
    )
    candidates: int = key(1, "ours", "episodes a question; more than 1 give pass@k and majority@k", low=1)
    batch: int = key(128, "ours", "episodes played beside each other and written together", low=1)
    corpus: CorpusConfig = field(default_factory=CorpusConfig)
    sampler: SamplerConfig = field(default_factory=SamplerConfig)
    env: EvaluationEnv = field(default_factory=EvaluationEnv)
    reward: RewardConfig = field(default_factory=RewardConfig)
    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    local: LocalConfig = field(default_factory=LocalConfig)
    server: ServerConfig = field(default_factory=ServerConfig)

    def rules(self, at: str = "") -> list[Rule]:
        """Of the names, of candidates, and between two sections."""
        repeats = self.candidates > 1 and self.sampling.temperature == 0
        return [
            *super().rules(at),
            ("name", self.name is None or is_folder_name(self.name), f"must be a folder name, not {self.name!r}"),
            ("model", bool(self.model.strip()), "is empty; name a folder, a model on the Hub, or the server's name"),
            (
                "candidates",
                not repeats,
                f"({self.candidates}) at sampling.temperature=0 would repeat one episode; raise the temperature",
            ),
            *gold_rules(self.reward, self.env),
        ]


def load_evaluation(
    files: Sequence[str | Path], overrides: Sequence[str] = (), usual: Mapping[str, Any] | None = None
) -> EvaluationConfig:
    """The evaluation that files and ``key=value`` overrides give, later ones winning; ConfigError like a run's.

    ``usual``: values that stand in for the defaults, as ``of_run.as_trained`` gives them.
    """
    return load_as(EvaluationConfig, check_evaluation, files, overrides, usual)


def check_evaluation(config: EvaluationConfig, origins: Mapping[str, str] | None = None) -> None:
    """``check_config`` of an evaluation; the origin of its server's address is not told, since it may hold a key."""
    check_config(config, {name: origin for name, origin in (origins or {}).items() if name != "server.url"})


def with_names(config: EvaluationConfig, model: str | Path | None = None) -> EvaluationConfig:
    """The same evaluation with the names filled in that were left out; ``model``: what ``config.model`` leads to."""
    model = config.model if model is None else str(model)
    benchmark = config.benchmark or _benchmark(config.corpus)
    who = model if config.backend in ("transformers", "vllm", "openai") else config.backend
    parts = [part for part in re.split(r"[/\\]+", who) if part.strip(".")]
    kept = parts[-2:] if parts[-1].startswith("checkpoint-") else parts[-1:]
    name = config.name or "-".join([*kept, benchmark, config.schema.replace(":", "-")]).lower()
    output = config.output or usual_output(model)
    return dataclasses.replace(config, name=name, output=output, model=model, benchmark=benchmark)


def usual_output(model: str) -> str:
    """Where evaluations of a model lie: with the run of a checkpoint, where its card and its report look for them."""
    run = Path(model).parent
    trained = Path(model).is_dir() and (run / CONFIG).is_file()
    return str(run / EVALUATIONS if trained else Path("runs") / EVALUATIONS)


def _benchmark(corpus: CorpusConfig) -> str:
    """The corpus, and what makes its questions others than the card's: tables must not take them for one benchmark."""
    usual = SPLITS.get(corpus.name, "test")
    return "-".join([corpus.name, *([corpus.split] if corpus.split != usual else []), *sorted(corpus.difficulties)])


def evaluation_folder(config: EvaluationConfig) -> Path:
    """OUTPUT/NAME."""
    if config.name is None or config.output is None:
        raise ConfigError("the evaluation has no name yet: with_names gives it one")
    return Path(config.output) / config.name
