"""Sizes of a model, read from its files without loading it: what an estimate of memory and disk is made of."""

import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

VISION = ("visual", "vision_tower", "vision_model")  # parts of a tensor's name
UNKNOWN = ("mtp",)  # transformers loads these not
HEAD, EMBEDDING = "lm_head.weight", "embed_tokens.weight"
DEFAULT_TARGETS = (
    *("q_proj", "k_proj", "v_proj", "o_proj"),
    *("in_proj_qkv", "in_proj_z", "out_proj"),
    *("gate_proj", "up_proj", "down_proj"),
)


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
# Counted in the same way from the published shapes; the vision tower of the 0.8B is a guess.
KNOWN = (
    QWEN35_2B,
    ModelShape(
        name="Qwen3.5-0.8B",
        text=752_393_024,
        vision=100_000_000,
        lora=638_976,
        layers=24,
        hidden=1_024,
        intermediate=3_584,
        vocabulary=248_320,
    ),
    ModelShape(
        name="SmolLM2-135M",
        text=134_515_008,
        vision=0,
        lora=305_280,
        layers=30,
        hidden=576,
        intermediate=1_536,
        vocabulary=49_152,
    ),
)


def model_shape(path: Path | str, targets: Sequence[str] = DEFAULT_TARGETS) -> ModelShape:
    """The shape of the model at ``path``: a folder, or a name on the Hub whose files are in its cache.

    Where neither can be read: one of ``KNOWN`` by its name, else Qwen3.5-2B's, which is what the recipe trains
    (``is_assumed``). ``targets``: modules that LoRA adapts.
    """
    known = next((each for each in KNOWN if each.name in str(path)), QWEN35_2B)
    folder = cached(path) if isinstance(path, str) and not Path(path).is_dir() else Path(path)
    if not (folder / "config.json").is_file():
        return known
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        shapes = tensor_shapes(folder)
        return _shape(folder.name, {**config, **config.get("text_config", {})} | _tied(config), shapes, targets)
    except (OSError, ValueError, LookupError, struct.error):
        return known


def cached(name: str) -> Path:
    """Where the Hub's cache holds a model's files; a path that is not there where it holds none. Asks nobody."""
    from huggingface_hub import try_to_load_from_cache

    try:
        found = try_to_load_from_cache(name, "config.json")
    except ValueError:  # no name of a repository
        found = None
    return Path(found).parent if isinstance(found, str) else Path("/nonexistent")


def is_assumed(shape: ModelShape, path: Path | str) -> bool:
    """Whether ``model_shape`` could not read the model at ``path`` and took the recipe's for it."""
    return shape is QWEN35_2B and QWEN35_2B.name not in str(path)


def _tied(config: dict[str, Any]) -> dict[str, Any]:
    """A whole model's word on its head counts, not that of the text part alone."""
    return {"tie_word_embeddings": config["tie_word_embeddings"]} if "tie_word_embeddings" in config else {}


def tensor_shapes(folder: Path) -> dict[str, list[int]]:
    """Name and shape of every tensor in a folder's safetensors files, from their headers."""
    shapes: dict[str, list[int]] = {}
    for file in sorted(folder.glob("*.safetensors")):
        with file.open("rb") as opened:
            (length,) = struct.unpack("<Q", opened.read(8))
            header = json.loads(opened.read(length))
        shapes |= {name: each["shape"] for name, each in header.items() if name != "__metadata__"}
    if not shapes:
        raise LookupError(f"{folder} holds no safetensors files")
    return shapes


def _shape(name: str, config: dict[str, Any], shapes: dict[str, list[int]], targets: Sequence[str]) -> ModelShape:
    parts = {tensor: set(tensor.split(".")) for tensor in shapes}
    vision = {tensor for tensor in shapes if parts[tensor] & set(VISION)}
    tied = config.get("tie_word_embeddings", True) and any(tensor.endswith(EMBEDDING) for tensor in shapes)
    text = {
        tensor: shape
        for tensor, shape in shapes.items()
        if tensor not in vision and not parts[tensor] & set(UNKNOWN) and not (tied and tensor.endswith(HEAD))
    }
    return ModelShape(
        name=name,
        text=sum(map(prod, text.values())),
        vision=sum(prod(shapes[tensor]) for tensor in vision),
        lora=sum(sum(shape) for tensor, shape in text.items() if len(shape) == 2 and parts[tensor] & set(targets)),
        layers=config["num_hidden_layers"],
        hidden=config["hidden_size"],
        intermediate=config["intermediate_size"],
        vocabulary=config["vocab_size"],
    )
