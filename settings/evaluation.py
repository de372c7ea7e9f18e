"""Configuration of an evaluation: every key, with its default, its meaning and where the value comes from.

Read like a run's (``settings.load``), from the same kinds of sections. Imports no torch.
"""

import dataclasses
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sqale_grpo.settings.check import (
    ConfigError,
    Relation,
    check_bounds,
    check_relations,
    demo_relations,
    is_folder_name,
)
from sqale_grpo.settings.keys import CORPORA, DTYPES, EnvConfig, RewardConfig, SamplerConfig, key
from sqale_grpo.settings.load import load_as

# A model in three places, and four answers that check the harness itself.
BACKENDS = ("transformers", "vllm", "openai", "oracle", "empty", "no_rows")
APIS = ("auto", "completions", "chat")
SPLITS = {"bird": "dev", "jsonl": "train"}  # the split that a corpus is evaluated on, where it is not test
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
class CorpusConfig:
    """The questions and the databases."""

    name: str = key("sqale", "card", "which loader reads the source", choices=CORPORA)
    source: str | None = key(None, "ours", "folder or Hub name to prepare from; null uses what is prepared already")
    prepared: str = key("data/prepared", "ours", "folder in which prepared corpora lie, one folder each")
    split: str = key("test", "card", "split to evaluate on")
    limit: int | None = key(None, "ours", "prepare the first so many questions only; null takes all", low=1)
    difficulties: list[str] = key([], "card", "difficulty bands to choose questions from; empty takes all")
    evidence: bool = key(True, "assumption", "show BIRD's evidence after the question")
    demo_tables: list[int] = key([3, 120], "ours", "demo corpus: fewest and most tables of a schema", low=2)
    demo_rows: int = key(70, "ours", "demo corpus: rows of a table", low=1)
    demo_schemas: list[int] = key([160, 60], "ours", "demo corpus: schemas of the train and the test split", low=1)
    demo_questions: list[int] = key([24, 6], "ours", "demo corpus: questions of a train and of a test schema", low=1)


@dataclass
class EvaluationEnv(EnvConfig):
    """What the policy meets, as in training, but for the time that a query has."""

    query_seconds: float = key(30.0, "assumption", "seconds a query may run", above=0)


@dataclass
class SamplingConfig:
    """How tokens are drawn, and how many."""

    temperature: float = key(0.6, "page", "sampling temperature; 0 is greedy", low=0)
    top_p: float = key(0.95, "page", "nucleus", above=0, high=1)
    top_k: int = key(20, "page", "most likely tokens kept; 0 keeps all", low=0)
    max_turn_tokens: int = key(2_048, "page", "tokens the policy may write in one turn", low=1)
    max_episode_tokens: int = key(12_288, "page", "tokens of the prompt and all turns", low=1)


@dataclass
class LocalConfig:
    """A model on this machine: backends transformers and vllm."""

    dtype: str = key("bfloat16", "assumption", "number format of the weights in transformers", choices=DTYPES)
    vllm_memory_share: float = key(0.85, "ours", "share of the GPU that vLLM takes", above=0, high=1)
    vllm_seeded: bool = key(
        True,
        "ours",
        "vLLM draws by question, so that a restart repeats it; false caches prefixes between turns instead",
    )
    threads: int | None = key(None, "ours", "CPU threads of torch; null leaves torch's choice", low=1)
    use_cpu: bool = key(False, "ours", "stay on the CPU even where a GPU is")


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


@dataclass
class EvaluationConfig:
    """A whole evaluation."""

    name: str | None = key(None, "ours", "its folder is OUTPUT/NAME; null makes a name of model, benchmark and tables")
    seed: int = key(42, "assumption", "seed of the choice of questions, of phrasings, tables and sampling", low=0)
    output: str = key("runs/evaluations", "ours", "folder in which evaluations lie")
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
    questions: int = key(300, "card", "questions, chosen by the seed", low=1)
    tables: str = key("full", "card", "which tables exist: sampled, gold, distractors:N or full")
    candidates: int = key(1, "ours", "episodes a question; more than 1 give pass@k and majority@k", low=1)
    batch: int = key(128, "ours", "episodes played beside each other and written together", low=1)
    corpus: CorpusConfig = field(default_factory=CorpusConfig)
    sampler: SamplerConfig = field(default_factory=SamplerConfig)
    env: EvaluationEnv = field(default_factory=EvaluationEnv)
    reward: RewardConfig = field(default_factory=RewardConfig)
    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    local: LocalConfig = field(default_factory=LocalConfig)
    server: ServerConfig = field(default_factory=ServerConfig)


def load_evaluation(files: Sequence[str | Path], overrides: Sequence[str] = ()) -> EvaluationConfig:
    """The evaluation that files and ``key=value`` overrides give, later ones winning; ConfigError like a run's."""
    return load_as(EvaluationConfig, check_evaluation, files, overrides)


def check_evaluation(config: EvaluationConfig, origins: Mapping[str, str] | None = None) -> None:
    """Raise ConfigError at the first key out of its bounds, or the first two keys that contradict each other."""
    check_bounds(config, origins or {})
    # Without origins: they would repeat an address that holds a key.
    check_relations([_plain_address(config.server.url)], {})
    check_relations(_relations(config), origins or {})


def _relations(config: EvaluationConfig) -> list[Relation]:
    """Every rule that a key's own bounds cannot express."""
    sampler, sampling = config.sampler, config.sampling
    repeats = config.candidates > 1 and sampling.temperature == 0
    return [
        ("name", config.name is None or is_folder_name(config.name), f"must be a folder name, not {config.name!r}"),
        ("model", bool(config.model.strip()), "is empty; name a folder, a model on the Hub, or the server's name"),
        (
            "tables",
            re.fullmatch(r"sampled|gold|full|distractors:\d+", config.tables) is not None,
            f"must be sampled, gold, distractors:N or full, not {config.tables!r}",
        ),
        *demo_relations(config.corpus),
        (
            "candidates",
            not repeats,
            f"({config.candidates}) at sampling.temperature=0 would repeat one episode; raise the temperature",
        ),
        (
            "sampler.max_tables",
            sampler.max_tables >= sampler.min_tables,
            f"({sampler.max_tables}) must not be under sampler.min_tables ({sampler.min_tables})",
        ),
        (
            "reward.gold_seconds",
            config.reward.gold_seconds >= config.env.query_seconds,
            f"({config.reward.gold_seconds:g}) must not be under env.query_seconds ({config.env.query_seconds:g})",
        ),
        (
            "sampling.max_episode_tokens",
            sampling.max_episode_tokens > sampling.max_turn_tokens,
            f"({sampling.max_episode_tokens}) must be over sampling.max_turn_tokens ({sampling.max_turn_tokens})",
        ),
    ]


def _plain_address(url: str) -> Relation:
    return (
        "server.url",
        re.fullmatch(r"https?://[^\s/@?]+[^\s@?]*", url) is not None,
        "must be an http(s) address without a user or a key in it; the key goes into the environment variable "
        "that server.key_variable names",
    )


def with_names(config: EvaluationConfig, model: str | Path | None = None) -> EvaluationConfig:
    """The same evaluation with the names filled in that were left out; ``model``: what ``config.model`` leads to."""
    model = config.model if model is None else str(model)
    benchmark = config.benchmark or _benchmark(config.corpus)
    who = model if config.backend in ("transformers", "vllm", "openai") else config.backend
    parts = [part for part in re.split(r"[/\\]+", who) if part.strip(".")]
    kept = parts[-2:] if parts[-1].startswith("checkpoint-") else parts[-1:]
    name = config.name or "-".join([*kept, benchmark, config.tables.replace(":", "-")]).lower()
    return dataclasses.replace(config, name=name, model=model, benchmark=benchmark)


def _benchmark(corpus: CorpusConfig) -> str:
    """The corpus, and what makes its questions others than the card's: tables must not take them for one benchmark."""
    usual = SPLITS.get(corpus.name, "test")
    return "-".join([corpus.name, *([corpus.split] if corpus.split != usual else []), *sorted(corpus.difficulties)])


def evaluation_folder(config: EvaluationConfig) -> Path:
    """OUTPUT/NAME."""
    if config.name is None:
        raise ConfigError("the evaluation has no name yet: with_names gives it one")
    return Path(config.output) / config.name
