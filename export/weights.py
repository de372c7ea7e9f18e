"""The exported tensors: the trained language model in the layout of the initial policy's files.

transformers drops ``mtp.*`` on load, and a training run keeps weights in float32. So the export goes by the initial
policy's own files: the same file names, tensor names, shapes and number formats, with the tensors that were trained put
in their places, and all others (vision tower, multi-token prediction) copied byte for byte.
"""

import json
import math
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from sqale_grpo.env.files import open_to_others
from sqale_grpo.rollout.policy import is_vision
from sqale_grpo.settings.check import ConfigError

INDEX = "model.safetensors.index.json"
PREDICTION = "mtp."
EMBEDDING, HEAD = "embed_tokens.weight", "lm_head.weight"


@dataclass(frozen=True)
class WeightsReport:
    """What was written: numbers of tensors from the checkpoint and kept, parameters, bytes, and files."""

    trained: int
    kept: int
    parameters: int
    bytes: int
    files: list[str]


class Tensors:
    """The tensors of a folder's safetensors files, read one at a time."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        files = weight_files(folder)
        self.files = {file: stack.enter_context(_opened(folder / file)) for file in files}
        self.place = {name: file for file, opened in self.files.items() for name in opened.keys()}  # noqa: SIM118

    def __getitem__(self, name: str) -> torch.Tensor:
        return self.files[self.place[name]].get_tensor(name)

    def __contains__(self, name: str) -> bool:
        return name in self.place


def _opened(file: Path) -> Any:
    try:
        return safe_open(file, "pt")
    except SafetensorError as error:
        raise ConfigError(f"{file} is damaged ({error}): export another checkpoint") from error


def weight_files(folder: Path) -> list[str]:
    """Names of a model's safetensors files. ConfigError where there are none, or the index names one that is gone."""
    index = folder / INDEX
    if index.is_file():
        files = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
    else:
        files = sorted(file.name for file in folder.glob("*.safetensors"))
    missing = [file for file in files if not (folder / file).is_file()]
    if missing or not files:
        raise ConfigError(f"{folder} lacks {', '.join(missing) or 'safetensors files'}: the export needs its weights")
    return files


def export_weights(
    base: Path, trained: Path, out: Path, vision_trained: bool = False, dtype: torch.dtype | None = None
) -> WeightsReport:
    """Write the weights of ``trained`` into ``out`` in the layout of ``base``; all three are folders.

    ``dtype`` None: every tensor in the number format that it has in ``base``. ConfigError where the two are not of one
    architecture: a tensor is missing on either side, or has another shape.
    """
    with ExitStack() as stack:
        original, new = Tensors(base, stack), Tensors(trained, stack)
        source = _sources(original, new, vision_trained)
        _check_all_used(original, new, source, base, trained)
        for file in original.files:
            tensors = {
                name: _written(name, original, new, source, dtype) for name, at in original.place.items() if at == file
            }
            save_file(tensors, out / file, metadata={"format": "pt"})
            open_to_others(out / file)  # a server in a container and a colleague load it too
    return _finish(base, out, list(original.files), sum(name is not None for name in source.values()))


def _sources(original: Tensors, new: Tensors, vision_trained: bool) -> dict[str, str | None]:
    """For every tensor of the original the trained one's name; None: it is kept."""
    return {
        name: None if name.startswith(PREDICTION) or (is_vision(name) and not vision_trained) else _found(name, new)
        for name in original.place
    }


def _found(name: str, new: Tensors) -> str:
    """The trained tensor for ``name``, also from a text-only checkpoint of a vision-language model."""
    for spelling in (name, name.replace("model.language_model.", "model.", 1)):
        if spelling in new:
            return spelling
    if name.endswith(HEAD):  # tied: the embedding holds it
        return next(iter(spelling for spelling in new.place if spelling.endswith(EMBEDDING)), name)
    raise ConfigError(f"the checkpoint lacks the tensor {name} of the initial policy: is it of another model?")


def _check_all_used(original: Tensors, new: Tensors, source: dict[str, str | None], base: Path, trained: Path) -> None:
    used = set(source.values()) | set(original.place)
    left = [name for name in new.place if name not in used and not name.endswith(HEAD)]
    if left:
        raise ConfigError(f"{trained} holds {left[0]}, which the initial policy in {base} does not have")


def _written(
    name: str, original: Tensors, new: Tensors, source: dict[str, str | None], dtype: torch.dtype | None
) -> torch.Tensor:
    old, origin = original[name], source[name]
    if origin is None:
        return old
    tensor = new[origin]
    if tensor.shape != old.shape:
        raise ConfigError(f"{name} has shape {list(tensor.shape)} in the checkpoint, {list(old.shape)} in its base")
    if not bool(torch.isfinite(tensor).all()):
        raise ConfigError(f"{name} holds values that are not finite: this checkpoint is broken, export an earlier one")
    return tensor.to(dtype or old.dtype).contiguous()


def _finish(base: Path, out: Path, files: list[str], trained: int) -> WeightsReport:
    shapes = dict(tensor_shapes(out))
    parameters = sum(math.prod(shape) for shape in shapes.values())
    size = sum((out / file).stat().st_size for file in files)
    if (base / INDEX).is_file():
        index = json.loads((base / INDEX).read_text(encoding="utf-8"))
        if "total_size" in index.get("metadata", {}):
            index["metadata"]["total_size"] = _tensor_bytes(out)
        (out / INDEX).write_text(json.dumps(index, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    return WeightsReport(trained, len(shapes) - trained, parameters, size, files)


def tensor_shapes(folder: Path) -> Iterator[tuple[str, tuple[int, ...]]]:
    """(name, shape) of every tensor in a folder's weights, without reading them."""
    for file in weight_files(folder):
        with safe_open(folder / file, "pt") as opened:
            yield from ((name, tuple(opened.get_slice(name).get_shape())) for name in opened.keys())  # noqa: SIM118


def _tensor_bytes(folder: Path) -> int:
    total = 0
    for file in weight_files(folder):
        with safe_open(folder / file, "pt") as opened:
            for name in opened.keys():  # noqa: SIM118
                tensor = opened.get_tensor(name)
                total += tensor.numel() * tensor.element_size()
    return total
