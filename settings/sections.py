"""The sections of keys that a run and an evaluation share: each key with its default, meaning, source and rules.

Sources: ``card`` (the model card), ``page`` (the authors' project page or data library), ``earlier`` (cards of earlier
runs of the authors), ``assumption`` (published nowhere: ours), ``ours`` (a knob of this implementation; it does not
exist in the paper). Where training and evaluation need other defaults, a subclass says so. Imports no torch.
"""

import dataclasses
import re
from dataclasses import dataclass, field
from typing import Any, TypeVar

from sqale_grpo.corpus.demo import MOST_TABLES, DemoShape
from sqale_grpo.env.episode import EpisodeLimits
from sqale_grpo.env.limits import Limits
from sqale_grpo.settings.sampling import Sampling

SOURCES = ("card", "page", "earlier", "assumption", "ours")
CORPORA = ("sqale", "bird", "synsql", "ehrsql", "spider", "jsonl", "demo")
DTYPES = ("bfloat16", "float32")
PHRASINGS = ("drawn", "evidence")
DEMO_PAIRS = ("demo_tables", "demo_schemas", "demo_questions")

Rule = tuple[str, bool, str]  # a key of the section (of the whole configuration: dotted), does it hold, what to say
S = TypeVar("S")


def key(default: Any, source: str, text: str, **bounds: Any) -> Any:
    """A dataclass field that carries its help text, its source and its bounds.

    ``bounds``: ``low``/``high`` (inclusive), ``above`` (exclusive), ``choices`` (allowed strings).
    """
    metadata = {"source": source, "help": text, **bounds}
    if isinstance(default, list):
        return field(default_factory=lambda: list(default), metadata=metadata)
    return field(default=default, metadata=metadata)


def as_section(kind: type[S], section: Any, **changes: Any) -> S:
    """A section of ``kind`` with the values of ``section``, which has all of its keys, except for ``changes``."""
    names = [each.name for each in dataclasses.fields(kind) if each.name not in changes]  # type: ignore[arg-type]
    return kind(**{name: getattr(section, name) for name in names}, **changes)


@dataclass
class CorpusConfig:
    """The questions and the databases."""

    name: str = key("sqale", "card", "which loader reads the source", choices=CORPORA)
    source: str | None = key(None, "ours", "folder or Hub name to prepare from; null uses what is prepared already")
    prepared: str = key("data/prepared", "ours", "folder in which prepared corpora lie, one folder each")
    split: str = key("test", "card", "split of the questions")
    limit: int | None = key(None, "ours", "prepare the first so many questions only; null takes all", low=1)
    difficulties: list[str] = key([], "card", "difficulty bands to take questions from; empty takes all")
    evidence: bool = key(True, "assumption", "show BIRD's evidence or SynSQL's external knowledge after the question")
    phrasing: str = key(
        "drawn",
        "assumption",
        "which wording of a SQaLe question is asked: drawn: one of its usable ones; evidence: the one that carries its "
        "evidence, which is shown as such; a question without one is drawn",
        choices=PHRASINGS,
    )
    demo_tables: list[int] = key([3, 120], "ours", "demo corpus: fewest and most tables of a schema", low=2)
    demo_rows: int = key(70, "ours", "demo corpus: rows of a table", low=1)
    demo_schemas: list[int] = key([160, 60], "ours", "demo corpus: schemas of the train and the test split", low=1)
    demo_questions: list[int] = key([24, 6], "ours", "demo corpus: questions of a train and of a test schema", low=1)

    def shape(self) -> DemoShape | None:
        """The shape of the demo corpus; None where it is another corpus."""
        if self.name != "demo":
            return None
        (fewest, most), schemas, questions = self.demo_tables, self.demo_schemas, self.demo_questions
        return DemoShape((fewest, most), self.demo_rows, (schemas[0], schemas[1]), (questions[0], questions[1]))

    def rules(self, at: str) -> list[Rule]:
        """Of the demo corpus' shape."""
        pairs = {name: getattr(self, name) for name in DEMO_PAIRS}
        rising = self.demo_tables == sorted(self.demo_tables) and self.demo_tables[-1] <= MOST_TABLES
        return [
            *((name, len(pair) == 2, f"must be two numbers, not {pair}") for name, pair in pairs.items()),
            (
                "demo_tables",
                rising,
                f"must rise and not go over {MOST_TABLES}, for which there are names, not {self.demo_tables}",
            ),
        ]


@dataclass
class SamplerConfig:
    """How many tables an episode's database holds."""

    min_tables: int = key(4, "card", "smallest target size; the draw is a uniform integer (assumption)", low=1)
    max_tables: int = key(64, "card", "largest target size", low=1)

    def sizes(self) -> tuple[int, int]:
        """Smallest and largest target."""
        return self.min_tables, self.max_tables

    def rules(self, at: str) -> list[Rule]:
        """The largest is not under the smallest."""
        text = f"({self.max_tables}) must not be under {at}.min_tables ({self.min_tables})"
        return [("max_tables", self.max_tables >= self.min_tables, text)]


@dataclass
class EnvConfig:
    """What the policy meets: budget of turns, limits on queries, size of tool results."""

    tool_turns: int = key(6, "card", "turns with tools before the final turn", low=1)
    error_cap: int = key(4, "page", "failed run_query calls in a row after which the final turn comes", low=1)
    query_steps: int = key(400_000_000, "assumption", "virtual-machine steps a query may take", low=2_000)
    query_seconds: float = key(30.0, "assumption", "seconds a query may run, a safety net over its steps", above=0)
    max_rows: int = key(10_000, "assumption", "rows a scored query may return; more is an error", low=1)
    value_bytes: int = key(1_000_000, "assumption", "bytes one string or blob may hold", low=1_000)
    memory_mb: int = key(256, "assumption", "megabytes that a query may add to its process", low=16)
    preview_rows: int = key(5, "page", "rows that run_query shows, and the default limit of the other two", low=1)
    cell_chars: int = key(80, "assumption", "characters a cell shows before it is cut", low=8)
    result_chars: int = key(4_000, "assumption", "characters a tool result shows before it is cut", low=100)
    sample_rows_cap: int = key(20, "assumption", "largest limit of sample_rows", low=1)
    distinct_values_cap: int = key(50, "assumption", "largest limit of distinct_values", low=1)
    prompts: str | None = key(None, "assumption", "JSON file of prompts; null takes the project's own")
    workers: int | None = key(None, "ours", "processes that run queries; null takes one a core", low=1)

    def query_limits(self) -> Limits:
        """What one query of the policy may use."""
        return Limits(
            seconds=self.query_seconds,
            steps=self.query_steps,
            rows=self.max_rows,
            length=self.value_bytes,
            memory_mb=self.memory_mb,
        )

    def episode_limits(self) -> EpisodeLimits:
        """Turns of an episode, and what a tool shows."""
        return EpisodeLimits(
            tool_turns=self.tool_turns,
            turn_steps=5 * self.query_steps // 2,
            error_cap=self.error_cap,
            preview_rows=self.preview_rows,
            sample_rows_cap=self.sample_rows_cap,
            distinct_values_cap=self.distinct_values_cap,
            cell_chars=self.cell_chars,
            result_chars=self.result_chars,
        )


def evaluation_seconds() -> Any:
    """The key of the time that a query has in an evaluation."""
    return key(30.0, "assumption", "seconds a query may run", above=0)


@dataclass
class EvaluationEnv(EnvConfig):
    """What the policy meets, as in training, except for the time that a query has."""

    query_seconds: float = evaluation_seconds()


@dataclass
class RewardConfig:
    """How an answer is scored; the tiers themselves are the card's and no keys."""

    gold_seconds: float = key(30.0, "assumption", "seconds the gold query may run when an answer is scored", above=0)
    counter_databases: int = key(
        0, "ours", "changed copies of the gold tables on which an answer must be right too", low=0, high=2
    )


@dataclass
class SamplingConfig:
    """How tokens are drawn, and how many."""

    temperature: float = key(0.6, "page", "sampling temperature; 0 is greedy", low=0)
    top_p: float = key(0.95, "page", "nucleus", above=0, high=1)
    top_k: int = key(20, "page", "most likely tokens kept; 0 keeps all", low=0)
    max_turn_tokens: int = key(2_048, "page", "tokens the policy may write in one turn", low=1)
    max_episode_tokens: int = key(12_288, "page", "tokens of the prompt and all turns", low=1)

    def sampling(self) -> Sampling:
        """The same as a backend takes it."""
        return Sampling(
            temperature=self.temperature,
            top_p=self.top_p,
            top_k=self.top_k,
            max_turn_tokens=self.max_turn_tokens,
            max_episode_tokens=self.max_episode_tokens,
        )

    def rules(self, at: str) -> list[Rule]:
        """An episode is longer than a turn."""
        text = f"({self.max_episode_tokens}) must be over {at}.max_turn_tokens ({self.max_turn_tokens})"
        return [("max_episode_tokens", self.max_episode_tokens > self.max_turn_tokens, text)]


@dataclass
class AskedConfig:
    """Which questions an evaluation asks, and over which tables."""

    questions: int = key(300, "card", "questions, chosen by the seed", low=1)
    schema: str = key("full", "card", "which tables exist: gold, distractors:N, full or sampled")

    def rules(self, at: str) -> list[Rule]:
        """The schema is one of the four."""
        known = re.fullmatch(r"sampled|gold|full|distractors:\d+", self.schema) is not None
        return [("schema", known, f"must be gold, distractors:N, full or sampled, not {self.schema!r}")]


@dataclass
class DeviceConfig:
    """What torch computes on."""

    threads: int | None = key(None, "ours", "CPU threads of torch; null leaves torch's choice", low=1)
    use_cpu: bool = key(False, "ours", "stay on the CPU even where a GPU is")


def gold_rules(reward: RewardConfig, env: EnvConfig) -> list[Rule]:
    """The gold query has no less time than the answer."""
    text = f"({reward.gold_seconds:g}) must not be under env.query_seconds ({env.query_seconds:g})"
    return [("reward.gold_seconds", reward.gold_seconds >= env.query_seconds, text)]


def is_folder_name(name: str) -> bool:
    """Whether ``name`` names one folder, with no way out of its parent."""
    fits = len(name.encode()) <= 255  # what file systems take
    return fits and bool(name.strip()) and name not in (".", "..") and not set(name) & set("/\\\0")
