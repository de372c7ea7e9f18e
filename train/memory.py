"""Memory of one GPU in training, estimated from the configuration and the shape of Qwen3.5-2B; nothing is loaded."""

from dataclasses import dataclass

from sqale_grpo.settings.keys import Config

GIB = 2**30
BYTES = {"float32": 4, "bfloat16": 2}
# TRL's fused head: one tile of logits (tokens x vocabulary) in 16 bits, and a float32 gradient of the whole head.
HEAD_TILE = 4_096 * 32_768
CONTEXT = 2 * GIB  # what the CUDA context, NCCL's buffers and the allocator's gaps take
STRATEGIES = ("single", "ddp", "zero2", "zero3", "fsdp2")


@dataclass(frozen=True)
class ModelShape:
    """Sizes of a model; ``text`` is what trains, ``vision`` is frozen, ``lora`` is parameters a unit of LoRA rank."""

    name: str
    text: int
    vision: int
    lora: int
    layers: int
    hidden: int
    intermediate: int
    vocabulary: int


# Counted from the published shape: transformers' Qwen3_5ForCausalLM has exactly so many text parameters. LoRA on the
# attention, delta-net and MLP projections: 18 linear layers of 40,960 a rank, 6 full ones of 39,936.
QWEN35_2B = ModelShape(
    name="Qwen3.5-2B",
    text=1_881_825_088,
    vision=330_000_000,
    lora=976_896,
    layers=24,
    hidden=2_048,
    intermediate=6_144,
    vocabulary=248_320,
)


@dataclass(frozen=True)
class Part:
    """One consumer of memory: what, by which formula, bytes in all, and whether the GPUs share it out."""

    name: str
    formula: str
    size: int
    shared: bool

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
    return [*parts, *_passing(config, micro_batch, shape)]


def trained_parameters(config: Config, shape: ModelShape = QWEN35_2B) -> int:
    """How many parameters train."""
    return config.model.lora_rank * shape.lora if config.model.lora_rank else shape.text


def _passing(config: Config, micro_batch: int, shape: ModelShape) -> list[Part]:
    """What a pass needs, on every GPU."""
    tokens = micro_batch * config.rollout.max_episode_tokens
    layer = tokens * (8 * shape.hidden + 3 * shape.intermediate) * 2
    checkpointing = config.model.gradient_checkpointing
    kept = shape.layers * tokens * shape.hidden * 2 + layer if checkpointing else shape.layers * layer
    # The head projects the tokens that the policy wrote, tile by tile: no tensor of tokens x vocabulary is ever whole.
    head = HEAD_TILE * 2 + (0 if config.model.lora_rank else shape.vocabulary * shape.hidden * 4)
    return [
        Part("activations", _activation_formula(checkpointing), kept, False),
        Part("head", "4,096 x 32,768 x 2 + vocabulary x hidden x 4", head, False),
        Part("CUDA, NCCL", "a guess", CONTEXT, False),
    ]


def checkpoint_bytes(config: Config, shape: ModelShape = QWEN35_2B) -> int:
    """Bytes of one checkpoint on disk: weights, both moments and the reference of what trains."""
    return trained_parameters(config, shape) * BYTES[config.model.weights_dtype] * (4 if config.train.beta else 3)


def _activation_formula(checkpointing: bool) -> str:
    layer = "tokens x (8 hidden + 3 intermediate) x 2"
    return f"layers x tokens x hidden x 2 + one layer's {layer}" if checkpointing else f"layers x {layer}"
