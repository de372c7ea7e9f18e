"""Configuration of a run: every key, with its default, its meaning and where the value comes from.

The sections that an evaluation has too are those of ``settings.sections``, which says what the sources mean. Imports
no torch, so that a plan or a check costs nothing.
"""

import copy
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from sqale_grpo.curriculum import MixtureSchedule
from sqale_grpo.settings.demo_policy import DemoPolicyConfig
from sqale_grpo.settings.sections import (
    DTYPES,
    AskedConfig,
    CorpusConfig,
    DeviceConfig,
    EnvConfig,
    RewardConfig,
    Rule,
    SamplerConfig,
    SamplingConfig,
    evaluation_seconds,
    gold_rules,
    is_folder_name,
    key,
)

PAPER_UPDATES = 1_800
# Counts of updates that ``curriculum.scale_to_run`` reads as shares of a run.
SCALED = (
    *(("curriculum", name) for name in ("warmup_updates", "ramp_updates", "gate_updates")),
    *(("train", name) for name in ("anchor_updates", "save_updates")),
    ("evaluate", "every"),
)
BACKENDS = ("transformers", "vllm_colocate", "vllm_server")


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
class TrainCorpusConfig(CorpusConfig):
    """The questions and the databases."""

    split: str = key("train", "card", "split to train on")
    max_luck: float | None = key(
        None, "ours", "train on questions where at most this share of wrong queries is taken for right", low=0, high=1
    )
    include_unstable: bool = key(False, "ours", "train on questions whose gold result changes between two runs")


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
    scale_to_run: bool = key(
        False,
        "ours",
        "read counts of updates (curriculum, gate, anchor, saves) as of a run of 1,800, and scale them to this one's; "
        "the run's folder then holds the scaled counts",
    )

    def natural_shares(self) -> tuple[float, ...]:
        """Shares of the length buckets in a corpus as the percentiles cut it; equal lengths at a cut can shift them."""
        cuts = [0, *self.percentiles, 100]
        return tuple((high - low) / 100 for low, high in zip(cuts, cuts[1:], strict=False))

    def schedule(self, natural: Sequence[float] | None = None) -> MixtureSchedule:
        """The mixture schedule over the corpus' own shares ``natural``, or over those that the percentiles mean."""
        return MixtureSchedule(
            warmup=self.warmup_updates,
            ramp=self.ramp_updates,
            start=tuple(self.start),
            end=tuple(self.end),
            strength=self.strength,
            natural=tuple(self.natural_shares() if natural is None else natural),
        )

    def rules(self, at: str) -> list[Rule]:
        """Of the percentiles and the two mixtures."""
        cuts = self.percentiles
        rising = len(cuts) == 3 and all(0 < cut < 100 for cut in cuts) and cuts == sorted(set(cuts))
        return [
            ("percentiles", rising, f"must be three rising numbers between 0 and 100, not {cuts}"),
            *(
                (name, _is_mixture(shares), f"must be four shares that add up to 1, not {shares}")
                for name, shares in (("start", self.start), ("end", self.end))
            ),
        ]


def _is_mixture(shares: list[float]) -> bool:
    return len(shares) == 4 and all(share >= 0 for share in shares) and math.isclose(sum(shares), 1, abs_tol=1e-6)


@dataclass
class TrainRewardConfig(RewardConfig):
    """The same in training, where a part can be left out to measure what it is worth."""

    partial_credit: bool = key(True, "ours", "ablation: false gives 3.0 for a right answer and 0 for all else")
    bonuses: bool = key(True, "ours", "ablation: false leaves out the rewards for joins along keys and for agreement")


@dataclass
class RolloutConfig(SamplingConfig):
    """How episodes are generated in training."""

    temperature: float = key(1.0, "assumption", "sampling temperature", above=0)
    top_p: float = key(1.0, "assumption", "nucleus; below 1 it biases the importance ratio", above=0, high=1)
    top_k: int = key(0, "assumption", "most likely tokens kept; 0 keeps all", low=0)
    max_turn_tokens: int = key(2_048, "assumption", "tokens the policy may write in one turn", low=1)
    backend: str = key("transformers", "ours", "what generates; the recipe uses vllm_colocate", choices=BACKENDS)
    vllm_memory_share: float = key(0.3, "ours", "share of the GPU that a colocated vLLM takes", above=0, high=1)
    vllm_model_runner: str = key(
        "v1", "ours", "which of vLLM's two model runners a colocated one uses; the tests run v1", choices=("v1", "v2")
    )
    vllm_prefix_caching: bool = key(
        True, "ours", "a colocated vLLM keeps what it read: a turn's earlier ones are not read again"
    )
    vllm_sleep: bool = key(False, "ours", "a colocated vLLM gives its memory back between two rollouts")
    vllm_server: str = key("http://127.0.0.1:8000", "ours", "address of the vLLM server (`vllm serve`)")
    vllm_server_wait: float = key(0.0, "ours", "seconds to wait at the start for a server that is loading", low=0)
    vllm_group_port: int = key(51_216, "ours", "port on which weights go to the server", low=1, high=65_535)

    def rules(self, at: str) -> list[Rule]:
        """Those of sampling, and of the server's address."""
        plain = re.fullmatch(r"https?://[^\s/]+(/\S*[^\s/])?", self.vllm_server) is not None
        text = f"must be an address like http://HOST:8000, without a slash at its end, not {self.vllm_server!r}"
        return [*super().rules(at), ("vllm_server", plain, text)]


@dataclass
class TrainConfig(DeviceConfig):
    """The optimisation."""

    questions_per_update: int = key(18, "card", "questions an update", low=1)
    candidates: int = key(8, "card", "episodes a question: the group", low=2)
    updates: int = key(1_800, "card", "updates of the run", low=1)
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
    kl_bias_correction: bool = key(
        False, "assumption", "multiply the KL term by the policy's ratio, as TRL does unless told otherwise"
    )
    anchor_updates: int = key(111, "card", "updates between two re-anchors of the reference; 0 never", low=0)
    importance_level: str = key(
        "sequence", "earlier", "level of the sampler/trainer correction", choices=("none", "token", "sequence")
    )
    importance_mode: str = key(
        "mask",
        "assumption",
        "what happens to ratios over the cap: cut to it, or set to 0",
        choices=("truncate", "mask"),
    )
    importance_cap: float = key(3.0, "assumption", "largest ratio of the correction", above=0)
    save_updates: int = key(50, "ours", "updates between two checkpoints", low=1)
    keep_checkpoints: int = key(2, "ours", "newest checkpoints kept", low=1)
    preflight: bool = key(
        True, "ours", "on GPUs, look at kernels, engine, disk and draws before the first update, a minute or two"
    )
    heal: int = key(
        0, "ours", "breaks (no number, a lost engine) after which the run goes back to its last checkpoint", low=0
    )
    push_every: int = key(0, "ours", "updates between two checkpoints that are pushed to the Hub; 0 pushes none", low=0)
    push_repo: str | None = key(None, "ours", "Hub repository, OWNER/NAME, that takes them; a new one is private")
    log_to: list[str] = key(
        [], "ours", "trackers beside the plain log; WANDB_PROJECT names their project", choices=("wandb", "trackio")
    )
    log_episodes_updates: int = key(
        25, "ours", "updates between two tables of whole episodes in the trackers; 0 never", low=0
    )

    def rules(self, at: str) -> list[Rule]:
        """What is pushed is saved, and has a place."""
        every, saved = self.push_every, self.save_updates
        return [
            ("push_every", every % saved == 0, f"({every}) must be a multiple of {at}.save_updates ({saved})"),
            (
                "push_repo",
                not every or bool(self.push_repo),
                f"must name a repository, OWNER/NAME, where {at}.push_every is set",
            ),
            (
                "push_repo",
                self.push_repo is None or re.fullmatch(r"[\w.-]+/[\w.-]+", self.push_repo) is not None,
                f"must be OWNER/NAME, not {self.push_repo!r}",
            ),
        ]


@dataclass
class EvaluateConfig(AskedConfig, SamplingConfig):
    """The held-out questions: `sqale-grpo demo` plays them before and after, any run every so many updates if asked."""

    every: int = key(0, "ours", "updates between two plays of them during training, from update 0 on; 0 never", low=0)
    keep_best: bool = key(
        False, "ours", "keep the checkpoint that was best on them too, as checkpoint-best; the card's is the last"
    )

    split: str = key("test", "card", "split to evaluate on")
    query_seconds: float = evaluation_seconds()
    counter_databases: int | None = key(
        None, "ours", "changed copies for robust accuracy; null: as many as reward.counter_databases", low=0, high=2
    )

    def rules(self, at: str) -> list[Rule]:
        """Those of both."""
        played = "needs evaluate.every: the best is told by the held-out questions"
        return [
            *SamplingConfig.rules(self, at),
            *AskedConfig.rules(self, at),
            ("keep_best", not self.keep_best or self.every > 0, played),
        ]


@dataclass
class Config:
    """A whole run."""

    name: str = key("run", "ours", "name of the run; its folder is OUTPUT/NAME")
    seed: int = key(42, "assumption", "seed of everything", low=0)
    output: str = key("runs", "ours", "folder in which runs lie")
    model: ModelConfig = field(default_factory=ModelConfig)
    corpus: TrainCorpusConfig = field(default_factory=TrainCorpusConfig)
    sampler: SamplerConfig = field(default_factory=SamplerConfig)
    env: EnvConfig = field(default_factory=EnvConfig)
    curriculum: CurriculumConfig = field(default_factory=CurriculumConfig)
    reward: TrainRewardConfig = field(default_factory=TrainRewardConfig)
    rollout: RolloutConfig = field(default_factory=RolloutConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    evaluate: EvaluateConfig = field(default_factory=EvaluateConfig)
    demo_policy: DemoPolicyConfig = field(default_factory=DemoPolicyConfig)

    def scaled(self) -> "Config":
        """The same with ``SCALED`` counts as shares of this run, where ``curriculum.scale_to_run`` asks for it.

        0 stays 0 (never); no other count falls under 1. What goes with the saves stays a multiple of them: pushes, and
        plays of the held-out questions.
        """
        if not self.curriculum.scale_to_run:
            return self
        made = copy.deepcopy(self)
        made.curriculum.scale_to_run = False  # a resume reads what is saved, and must not scale it again
        pushes, plays = (each // self.train.save_updates for each in (self.train.push_every, self.evaluate.every))
        with_saves = self.evaluate.every % self.train.save_updates == 0
        for section, name in SCALED:
            counts = getattr(made, section)
            wanted = getattr(counts, name)
            if wanted:
                setattr(counts, name, max(1, round(wanted * self.train.updates / PAPER_UPDATES)))
        made.train.push_every = pushes * made.train.save_updates
        if with_saves:
            made.evaluate.every = plays * made.train.save_updates
        return made

    def rules(self, at: str = "") -> list[Rule]:
        """Of the name, and between two sections."""
        named = ("name", is_folder_name(self.name), f"must be a plain folder name, not {self.name!r}")
        measured = self.corpus.max_luck is None or self.reward.counter_databases > 0
        luck = "wants reward.counter_databases of 1 or more: the choice of copies measures it"
        every, saved = self.evaluate.every, self.train.save_updates
        budgets = self.evaluate.max_episode_tokens, self.rollout.max_episode_tokens
        engine = self.rollout.backend != "transformers" and every > 0
        return [
            named,
            ("corpus.max_luck", measured, luck),
            (
                "evaluate.every",
                not self.evaluate.keep_best or every % saved == 0,
                f"({every}) must be a multiple of train.save_updates ({saved}) where evaluate.keep_best is set",
            ),
            (
                "evaluate.max_episode_tokens",
                not engine or budgets[0] <= budgets[1],
                f"({budgets[0]}) must not be over rollout.max_episode_tokens ({budgets[1]}), for which vLLM is made, "
                "where evaluate.every is set",
            ),
            *gold_rules(self.reward, self.env),
        ]

    def copies(self, split: str) -> int:
        """Counter-databases of a question of the split: those of the reward, or those of the evaluation."""
        asked = self.evaluate.counter_databases
        return self.reward.counter_databases if split == self.corpus.split or asked is None else asked
