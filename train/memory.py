"""Memory of one GPU in training, and the disk of a checkpoint, from the configuration and a model's shape."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from sqale_grpo.settings.keys import Config
from sqale_grpo.train.model_shape import QWEN35_2B, ModelShape

GIB = 2**30
BYTES = {"float32": 4, "bfloat16": 2}
# TRL's fused head: one tile of logits (tokens x vocabulary) in 16 bits, and a float32 gradient of the whole head.
HEAD_TILE = 4_096 * 32_768
CONTEXT = 2 * GIB  # what the CUDA context, NCCL's buffers and the allocator's gaps take
PROGRAM = 700 * 2**20  # of a process on the CPU that has imported torch and TRL: measured
# What cards of so many GB report in GiB, the least of their kind: L4 and A10; A100; L40S; H100; H200.
CARDS = ((24, 22.0), (40, 39.4), (48, 44.4), (80, 79.1), (141, 139.8))
STRATEGIES = ("single", "ddp", "zero2", "zero3", "fsdp2")


@dataclass(frozen=True)
class Part:
    """One consumer of memory: what, by which formula, bytes in all, and whether the GPUs share it out.

    ``during``: "always", or the one of an update's two phases in which it is there.
    """

    name: str
    formula: str
    size: int
    shared: bool
    during: Literal["always", "pass", "step"] = "always"

    def on_rank(self, gpus: int) -> float:
        """Bytes on one of ``gpus`` GPUs."""
        return self.size / gpus if self.shared else self.size


def memory_parts(config: Config, micro_batch: int, strategy: str, shape: ModelShape = QWEN35_2B) -> list[Part]:
    """The parts at the worst case: every episode of the micro-batch is ``rollout.max_episode_tokens`` long.

    ``strategy`` is one of ``STRATEGIES``. DeepSpeed casts the weights that compute to 16 bits and keeps the trained
    ones in float32 beside them, shared out; elsewhere float32 weights compute through 16-bit copies (autocast, FSDP's
    mixed precision).
    """
    model, trained = config.model, trained_parameters(config, shape)
    zero, whole = strategy in ("zero2", "zero3"), shape.text + shape.vision
    split = strategy in ("zero3", "fsdp2")  # weights and reference too
    computing = 2 if zero and model.dtype == "bfloat16" else BYTES[model.weights_dtype]
    stored = BYTES[model.weights_dtype]
    lora = model.lora_rank * shape.lora if model.lora_rank else 0
    parts = [
        Part("weights", "(text + vision [+ LoRA]) x 4; DeepSpeed x 2", (whole + lora) * computing, split),
        Part("gradients", "trained x 4; DeepSpeed x 2", trained * computing, strategy not in ("single", "ddp")),
        Part("AdamW moments", "trained x 2 x 4", trained * 2 * stored, strategy not in ("single", "ddp")),
    ]
    if zero and computing != stored:
        parts.append(Part("float32 weights", "trained x 4 (DeepSpeed)", trained * stored, True))
    if strategy == "ddp":
        parts.append(Part("gradient buckets", "trained x 4 (DDP)", trained * stored, False))
    if strategy in ("single", "ddp") and model.dtype != model.weights_dtype:
        parts.append(Part("16-bit copies", "text x 2 (autocast)", shape.text * 2, False))
    if config.train.beta:
        reference = lora * computing if lora else whole * computing
        parts.append(Part("reference", "as weights, or the adapter alone with LoRA", reference, split))
    foreach = Part(
        "AdamW's step", "trained x 4 (foreach)", trained * stored, strategy not in ("single", "ddp"), during="step"
    )
    return [*parts, *_passing(config, micro_batch, strategy, shape), foreach]


def peak(parts: Iterable[Part], gpus: int, engine: float = 0.0, sleeps: bool = False) -> float:
    """Bytes on one of ``gpus`` GPUs at the peak: what is always there, and the larger of the passes and the step.

    ``engine``: bytes of a colocated vLLM, beside all of it, or where it ``sleeps`` in turn with passes and step.
    """
    sums = dict.fromkeys(("always", "pass", "step"), 0.0)
    for part in parts:
        sums[part.during] += part.on_rank(gpus)
    busy = max(sums["pass"], sums["step"])
    return sums["always"] + (max(busy, engine) if sleeps else busy + engine)


def smallest_card(config: Config, parts: Iterable[Part], gpus: int) -> int | None:
    """Nominal GB of the smallest of ``CARDS`` that holds the peak and the engine's share of it; None: none does."""
    rollout, parts = config.rollout, list(parts)
    share = rollout.vllm_memory_share if rollout.backend == "vllm_colocate" else 0.0
    for nominal, size in CARDS:
        if peak(parts, gpus, share * size * GIB, rollout.vllm_sleep) <= size * GIB:
            return nominal
    return None


def trained_parameters(config: Config, shape: ModelShape = QWEN35_2B) -> int:
    """How many parameters train."""
    return config.model.lora_rank * shape.lora if config.model.lora_rank else shape.text


def _passing(config: Config, micro_batch: int, strategy: str, shape: ModelShape) -> list[Part]:
    """What a pass needs, on every GPU."""
    model, tokens = config.model, micro_batch * config.rollout.max_episode_tokens
    layer = tokens * (8 * shape.hidden + 3 * shape.intermediate) * 2
    # Under autocast the stream between two layers has the weights' format, which checkpointing keeps at each.
    stream = BYTES[model.weights_dtype] if strategy in ("single", "ddp") else BYTES[model.dtype]
    checkpointing = model.gradient_checkpointing
    kept = shape.layers * tokens * shape.hidden * stream + layer if checkpointing else shape.layers * layer
    # The head projects the tokens that the policy wrote, tile by tile: no tensor of tokens x vocabulary is ever whole.
    head = HEAD_TILE * 2 + (0 if model.lora_rank else shape.vocabulary * shape.hidden * 4)
    return [
        Part("activations", _activation_formula(checkpointing), kept, False, during="pass"),
        Part("head", "4,096 x 32,768 x 2 + vocabulary x hidden x 4", head, False, during="pass"),
        Part("Python, torch", "measured", PROGRAM, False)
        if config.train.use_cpu
        else Part("CUDA, NCCL", "a guess", CONTEXT, False),
    ]


def checkpoint_bytes(config: Config, shape: ModelShape = QWEN35_2B, sharding: str = "none") -> int:
    """Bytes of one checkpoint on disk, by what the launch shards (``train.launch.sharding``).

    Measured on small models, a file at a time. DeepSpeed writes the weights twice, once as its own, the tied head a
    second time, and float32 weights beside the moments. Adapters alone are saved of a LoRA policy.
    """
    stored = BYTES[config.model.weights_dtype]
    trained, references = trained_parameters(config, shape), 1 if config.train.beta else 0
    if config.model.lora_rank:
        return trained * 4 * (3 + references)
    whole = shape.text + shape.vision
    if sharding.startswith("zero") and config.model.dtype == "bfloat16":
        head = shape.vocabulary * shape.hidden * 2
        return whole * 2 * (2 + references) + head + trained * 12
    return whole * stored * (1 + references) + trained * 2 * stored


def _activation_formula(checkpointing: bool) -> str:
    layer = "tokens x (8 hidden + 3 intermediate) x 2"
    if not checkpointing:
        return f"layers x {layer}"
    return f"layers x tokens x hidden x 2 (4 under autocast) + one layer's {layer}"
