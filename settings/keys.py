"""Configuration: every key of a run, with its default, its meaning and where the value comes from.

Sources: ``card`` (the model card), ``page`` (the authors' project page or data library), ``earlier`` (cards of earlier
runs of the authors), ``assumption`` (published nowhere: ours), ``ours`` (a knob of this implementation; it does not
exist in the paper). Imports no torch, so that a plan or a check costs nothing.
"""

from dataclasses import dataclass, field
from typing import Any

SOURCES = ("card", "page", "earlier", "assumption", "ours")
BACKENDS = ("transformers", "vllm_colocate", "vllm_server")
CORPORA = ("sqale", "bird", "synsql", "ehrsql", "jsonl", "demo")
DTYPES = ("bfloat16", "float32")


def key(default: Any, source: str, text: str, **bounds: Any) -> Any:
    """A dataclass field that carries its help text, its source and its bounds.

    ``bounds``: ``low``/``high`` (inclusive), ``above`` (exclusive), ``choices`` (allowed strings).
    """
    metadata = {"source": source, "help": text, **bounds}
    if isinstance(default, list):
        return field(default_factory=lambda: list(default), metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass
class ModelConfig:
    """The initial policy."""

    path: str = key("Qwen/Qwen3.5-2B", "card", "folder or Hub name of the initial policy; `demo` builds the tiny one")
    dtype: str = key("bfloat16", "assumption", "number format of forward and backward", choices=DTYPES)
    weights_dtype: str = key(
        "float32",
        "assumption",
        "format of the trained weights: bfloat16 rounds most steps of 1e-5 away",
        choices=DTYPES,
    )
    freeze_vision: bool = key(True, "card", "leave the vision tower as it came: only the language model trains")
    enable_thinking: bool = key(True, "card", "open every turn with <think>, as the chat template does when asked to")
    gradient_checkpointing: bool = key(True, "ours", "recompute activations in the backward pass: memory for time")
    lora_rank: int = key(0, "ours", "rank of LoRA adapters; 0 trains every weight of the language model", low=0)
    lora_alpha: int = key(32, "ours", "scale of LoRA adapters: their product is multiplied by alpha / rank", low=1)
    lora_targets: list[str] = key(
        [
            *("q_proj", "k_proj", "v_proj", "o_proj"),
            *("in_proj_qkv", "in_proj_z", "out_proj"),
            *("gate_proj", "up_proj", "down_proj"),
        ],
        "ours",
        "modules of the language model that LoRA adapts: attention, delta net, MLP",
    )


@dataclass
class CorpusConfig:
    """The questions and the databases."""

    name: str = key("sqale", "card", "which loader reads the source", choices=CORPORA)
    source: str | None = key(None, "ours", "folder or Hub name to prepare from; null uses what is prepared already")
    prepared: str = key("data/prepared", "ours", "folder in which prepared corpora lie, one folder each")
    split: str = key("train", "card", "split to train on")
    limit: int | None = key(None, "ours", "prepare the first so many questions only; null takes all", low=1)
    difficulties: list[str] = key([], "card", "difficulty bands to train on; empty takes all")
    evidence: bool = key(True, "assumption", "show BIRD's evidence or SynSQL's external knowledge after the question")
    include_unstable: bool = key(False, "ours", "train on questions whose gold result changes between two runs")
    demo_tables: list[int] = key([3, 120], "ours", "demo corpus: fewest and most tables of a schema", low=2)
    demo_rows: int = key(70, "ours", "demo corpus: rows of a table", low=1)
    demo_schemas: list[int] = key([160, 60], "ours", "demo corpus: schemas of the train and the test split", low=1)
    demo_questions: list[int] = key([24, 6], "ours", "demo corpus: questions of a train and of a test schema", low=1)


@dataclass
class SamplerConfig:
    """How many tables an episode's database holds."""

    min_tables: int = key(4, "card", "smallest target size; the draw is a uniform integer (assumption)", low=1)
    max_tables: int = key(64, "card", "largest target size", low=1)


@dataclass
class EnvConfig:
    """What the policy meets: budget of turns, limits on queries, size of tool results."""

    tool_turns: int = key(6, "card", "rounds of tool calls before the final turn", low=1)
    error_cap: int = key(4, "page", "failed run_query calls in a row after which the final turn comes", low=1)
    query_seconds: float = key(5.0, "assumption", "seconds a query may run", above=0)
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


@dataclass
class CurriculumConfig:
    """Which questions come when, and the submit gate."""

    strength: float = key(1.0, "card", "1: the schedule; 0: the corpus' own shares; between: a blend", low=0, high=1)
    percentiles: list[int] = key([50, 80, 95], "card", "percentiles of masked gold SQL length that split the buckets")
    warmup_updates: int = key(400, "card", "first updates, from the short bucket only", low=0)
    ramp_updates: int = key(1_000, "card", "updates of the linear move from start to end", low=1)
    start: list[float] = key([0.40, 0.30, 0.20, 0.10], "card", "mixture after the warm-up (short ... very long)")
    end: list[float] = key([0.15, 0.20, 0.25, 0.40], "card", "mixture after the ramp")
    gate_start: float = key(1.0, "card", "probability of a closed submit gate at update 0", low=0, high=1)
    gate_updates: int = key(80, "card", "updates over which that falls linearly to 0", low=0)


@dataclass
class RewardConfig:
    """How an answer is scored; the tiers themselves are the card's and no keys."""

    gold_seconds: float = key(30.0, "assumption", "seconds the gold query may run when an answer is scored", above=0)


@dataclass
class TrainRewardConfig(RewardConfig):
    """The same in training, where a part can be left out to measure what it is worth."""

    partial_credit: bool = key(True, "ours", "ablation: false gives 3.0 for a right answer and 0 for all else")
    bonuses: bool = key(True, "ours", "ablation: false leaves out the rewards for joins along keys and for agreement")


@dataclass
class RolloutConfig:
    """How episodes are generated in training."""

    backend: str = key("transformers", "ours", "what generates; the recipe uses vllm_colocate", choices=BACKENDS)
    temperature: float = key(1.0, "assumption", "sampling temperature", above=0)
    top_p: float = key(1.0, "assumption", "nucleus; below 1 it biases the importance ratio", above=0, high=1)
    top_k: int = key(0, "assumption", "most likely tokens kept; 0 keeps all", low=0)
    max_turn_tokens: int = key(2_048, "assumption", "tokens the policy may write in one turn", low=1)
    max_episode_tokens: int = key(12_288, "page", "tokens of the prompt and all turns", low=1)
    vllm_memory_share: float = key(0.3, "ours", "share of the GPU that a colocated vLLM takes", above=0, high=1)
    vllm_sleep: bool = key(False, "ours", "a colocated vLLM gives its memory back between two rollouts")
    vllm_server: str = key("http://127.0.0.1:8000", "ours", "address of the vLLM server (`vllm serve`)")
    vllm_server_wait: float = key(0.0, "ours", "seconds to wait at the start for a server that is loading", low=0)
    vllm_group_port: int = key(51_216, "ours", "port on which weights go to the server", low=1, high=65_535)


@dataclass
class TrainConfig:
    """The optimisation."""

    questions_per_update: int = key(18, "card", "questions an update", low=1)
    candidates: int = key(8, "card", "episodes a question: the group", low=2)
    max_steps: int = key(1_800, "card", "updates of the run", low=1)
    micro_batch: int = key(1, "ours", "most episodes a device passes at once; the largest divisor is taken", low=1)
    learning_rate: float = key(1e-5, "earlier", "peak learning rate", above=0)
    lr_scheduler: str = key(
        "cosine", "earlier", "shape after the warm-up", choices=("cosine", "linear", "constant", "constant_with_warmup")
    )
    warmup_ratio: float = key(0.05, "earlier", "share of the updates over which the rate rises", low=0, high=1)
    adam_beta1: float = key(0.9, "assumption", "AdamW", low=0, high=1)
    adam_beta2: float = key(0.999, "assumption", "AdamW", low=0, high=1)
    weight_decay: float = key(0.0, "assumption", "AdamW", low=0)
    max_grad_norm: float = key(1.0, "assumption", "gradient clipping", above=0)
    loss_type: str = key(
        "dr_grpo", "earlier", "token sum over a constant (dr_grpo)", choices=("dr_grpo", "dapo", "bnpo", "grpo")
    )
    loss_constant: int = key(1_024, "earlier", "the constant that the token sum is divided by", low=1)
    scale_rewards: str = key(
        "none", "earlier", "what advantages are divided by: none centres only", choices=("none", "group", "batch")
    )
    clip_low: float = key(0.2, "earlier", "lower clip of the policy ratio", above=0)
    clip_high: float = key(0.28, "earlier", "upper clip of the policy ratio", above=0)
    beta: float = key(0.005, "earlier", "KL coefficient (k3); published as a target, fixed here (assumption)", low=0)
    anchor_updates: int = key(111, "card", "updates between two re-anchors of the reference; 0 never", low=0)
    importance_level: str = key(
        "sequence", "earlier", "level of the sampler/trainer correction", choices=("none", "token", "sequence")
    )
    importance_mode: str = key(
        "truncate", "assumption", "what happens to ratios over the cap", choices=("truncate", "mask")
    )
    importance_cap: float = key(3.0, "assumption", "largest ratio of the correction", above=0)
    save_updates: int = key(50, "ours", "updates between two checkpoints", low=1)
    keep_checkpoints: int = key(2, "ours", "newest checkpoints kept", low=1)
    push_every: int = key(0, "ours", "updates between two checkpoints that are pushed to the Hub; 0 pushes none", low=0)
    push_repo: str | None = key(None, "ours", "Hub repository, OWNER/NAME, that takes them; a new one is private")
    log_to: list[str] = key(
        [], "ours", "trackers beside the plain log; WANDB_PROJECT names their project", choices=("wandb", "trackio")
    )
    log_episodes_updates: int = key(
        25, "ours", "updates between two tables of whole episodes in the trackers; 0 never", low=0
    )
    threads: int | None = key(None, "ours", "CPU threads of torch; null leaves torch's choice", low=1)
    use_cpu: bool = key(False, "ours", "train on the CPU even where a GPU is")


@dataclass
class EvaluateConfig:
    """The evaluation before and after a run."""

    split: str = key("test", "card", "split to evaluate on")
    questions: int = key(300, "card", "questions, chosen by the seed", low=1)
    tables: str = key("full", "card", "sampled, gold, distractors:N or full")
    temperature: float = key(0.6, "page", "sampling temperature; 0 is greedy", low=0)
    top_p: float = key(0.95, "page", "nucleus", above=0, high=1)
    top_k: int = key(20, "page", "most likely tokens kept; 0 keeps all", low=0)
    max_turn_tokens: int = key(2_048, "page", "tokens the policy may write in one turn", low=1)
    max_episode_tokens: int = key(12_288, "page", "tokens of the prompt and all turns", low=1)
    query_seconds: float = key(30.0, "assumption", "seconds a query may run", above=0)


@dataclass
class PolicyConfig:
    """The demo policy, built where model.path is `demo`: it stands in for a pretrained checkpoint."""

    hidden_size: int = key(64, "ours", "width", low=8)
    layers: str = key("lf", "ours", "l: linear attention (gated delta net), f: full attention, in order")
    heads: int = key(2, "ours", "attention heads of either kind", low=1)
    head_dim: int = key(128, "ours", "width of a full-attention head; under 64 copying is hard to learn", low=8)
    linear_head_dim: int = key(32, "ours", "width of a linear-attention head", low=8)
    vocab_size: int = key(1_200, "ours", "tokens of the byte-pair tokenizer, trained on the train split", low=300)
    copy_loss: float = key(
        0.05, "ours", "warm start, first stage: copy random text until the loss is under this", above=0
    )
    copy_max_steps: int = key(600, "ours", "first stage: give up after so many steps", low=1)
    clean_loss: float = key(0.006, "ours", "second stage: clean traces until the loss is under this", above=0)
    clean_max_steps: int = key(900, "ours", "second stage: go on to the third after so many steps at the latest", low=1)
    imperfect_steps: int = key(300, "ours", "third stage: steps on traces that skip look-ups", low=0)
    careful_traces: int = key(3_000, "ours", "traces of the second stage, one a question", low=1)
    imperfect_traces: int = key(1_500, "ours", "traces of the third stage, one a question", low=1)
    max_tables: int | None = key(None, "ours", "most tables of a trace's database; null: sampler.max_tables", low=1)
    look_tables: float = key(0.5, "ours", "third stage: probability of looking for the table's name", low=0, high=1)
    look_columns: float = key(0.5, "ours", "third stage: probability of looking for the columns", low=0, high=1)
    look_values: float = key(0.6, "ours", "third stage: probability of looking for a value", low=0, high=1)
    try_query: float = key(
        0.65, "ours", "third stage: probability of running the query before it is submitted", low=0, high=1
    )
    idle: float = key(0.1, "ours", "third stage: probability of a call that serves nothing", low=0, high=1)
    muon_rate: float = key(0.01, "ours", "peak learning rate of the warm start for the matrices (Muon)", above=0)
    learning_rate: float = key(0.01, "ours", "the same for the other weights (AdamW)", above=0)
    batch_size: int = key(4, "ours", "traces a step", low=1)
    floor: float = key(0.10, "ours", "equivalent rate under which GRPO is not begun", low=0, high=1)
    seed: int = key(42, "ours", "seed of the policy; apart from the run's, so that runs share one policy", low=0)


@dataclass
class Config:
    """A whole run."""

    name: str = key("run", "ours", "name of the run; its folder is OUTPUT/NAME")
    seed: int = key(42, "assumption", "seed of everything", low=0)
    output: str = key("runs", "ours", "folder in which runs lie")
    model: ModelConfig = field(default_factory=ModelConfig)
    corpus: CorpusConfig = field(default_factory=CorpusConfig)
    sampler: SamplerConfig = field(default_factory=SamplerConfig)
    env: EnvConfig = field(default_factory=EnvConfig)
    curriculum: CurriculumConfig = field(default_factory=CurriculumConfig)
    reward: TrainRewardConfig = field(default_factory=TrainRewardConfig)
    rollout: RolloutConfig = field(default_factory=RolloutConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    evaluate: EvaluateConfig = field(default_factory=EvaluateConfig)
    policy: PolicyConfig = field(default_factory=PolicyConfig)
