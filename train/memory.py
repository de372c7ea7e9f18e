"""Memory of one GPU in training, estimated from the configuration and the shape of Qwen3.5-2B; nothing is loaded."""

from dataclasses import dataclass

from train.config import Config

GIB = 2**30
BYTES = {"float32": 4, "bfloat16": 2}
# TRL's fused head: one tile of logits (tokens x vocabulary) in 16 bits, and a float32 gradient of the whole head.
HEAD_TILE = 4_096 * 32_768


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
QWEN35_2B = ModelShape("Qwen3.5-2B", 1_881_825_088, 330_000_000, 976_896, 24, 2_048, 6_144, 248_320)


@dataclass(frozen=True)
class Part:
    """One consumer of memory: what, by which formula, bytes in all, and from which ZeRO stage on it is shared out."""

    name: str
    formula: str
    size: int
    shared_from_stage: int | None

    def on_rank(self, stage: int, world_size: int) -> float:
        """Bytes on one of ``world_size`` GPUs; stage 0 is plain data parallel, 2 ZeRO-2, 3 ZeRO-3 and FSDP2."""
        shared = self.shared_from_stage is not None and stage >= self.shared_from_stage
        return self.size / world_size if shared else self.size


def memory_parts(config: Config, micro_batch: int, shape: ModelShape = QWEN35_2B) -> list[Part]:
    """The parts at the worst case: every episode of the micro-batch is ``rollout.max_episode_tokens`` long."""
    model = config.model
    width = BYTES[model.weights_dtype]
    tokens = micro_batch * config.rollout.max_episode_tokens
    trained = model.lora_rank * shape.lora if model.lora_rank else shape.text
    hidden = tokens * shape.hidden * 2
    layer = tokens * (8 * shape.hidden + 3 * shape.intermediate) * 2
    kept = shape.layers * hidden + layer if model.gradient_checkpointing else shape.layers * layer
    head_gradient = 0 if model.lora_rank else shape.vocabulary * shape.hidden * 4
    parts = [
        Part("weights", f"(text + vision) x {width}", (shape.text + shape.vision) * width, 3),
        Part("gradients", f"trained x {width}", trained * width, 2),
        Part("AdamW moments", f"trained x 2 x {width}", trained * 2 * width, 1),
        Part("activations", _activation_formula(model.gradient_checkpointing), kept, None),
        Part("head", "4,096 x 32,768 x 2 + vocabulary x hidden x 4", HEAD_TILE * 2 + head_gradient, None),
    ]
    if model.lora_rank:
        parts[0] = Part("weights", f"(text + vision + LoRA) x {width}", parts[0].size + trained * width, 3)
    if model.dtype != model.weights_dtype:
        parts.append(Part("16-bit copies", "text x 2 (autocast)", shape.text * 2, 3))
    if config.train.beta:
        size = trained * width if model.lora_rank else parts[0].size
        parts.append(Part("reference", "as weights, or the adapter alone with LoRA", size, 3))
    return parts


def checkpoint_bytes(config: Config, shape: ModelShape = QWEN35_2B) -> int:
    """Bytes of one checkpoint on disk: weights, both moments and the reference of what trains."""
    trained = config.model.lora_rank * shape.lora if config.model.lora_rank else shape.text
    return trained * BYTES[config.model.weights_dtype] * (4 if config.train.beta else 3)


def _activation_formula(checkpointing: bool) -> str:
    layer = "tokens x (8 hidden + 3 intermediate) x 2"
    return f"layers x tokens x hidden x 2 + one layer's {layer}" if checkpointing else f"layers x {layer}"
