"""The seal of a checkpoint: size and digest of every file in it, so that a damaged one is told before it is read.

The list is written when all files are on the disk, and only then is the checkpoint marked as whole. A file that is
missing would else be a new optimizer without a word, and a file that was cut off a traceback without a name.
"""

import fnmatch
import functools
import hashlib
import json
import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from sqale_grpo.env.files import give_usual_modes, write_whole
from sqale_grpo.settings.check import ConfigError

MANIFEST = "manifest.json"
COMPLETE = "complete"  # written last: a checkpoint without it was cut off
WEIGHTS = ("model*.safetensors", "adapter*.safetensors", "*.json", "*.jinja")  # what loading a policy reads
BLOCK = 2**22
THREADS = 8  # hashing lets go of the interpreter; one thread reads about 1 GB/s


class DamagedCheckpoint(ConfigError):
    """A file of a checkpoint is not the one that was written."""


def seal(checkpoint: Path) -> None:
    """Put all files of ``checkpoint`` on the disk, write their list, and mark the checkpoint as whole.

    Files get the permissions that the umask leaves: safetensors writes for the owner alone.
    """
    names = sorted(file.relative_to(checkpoint).as_posix() for file in checkpoint.rglob("*") if file.is_file())
    names = [name for name in names if name not in (MANIFEST, COMPLETE)]
    for name in names:
        _sync(checkpoint / name)
    digests = _digests(checkpoint, names)
    files = {name: {"bytes": (checkpoint / name).stat().st_size, "blake2b": digests[name]} for name in names}
    write_whole(checkpoint / MANIFEST, json.dumps({"files": files}, indent=1))
    give_usual_modes(checkpoint)
    for folder in {checkpoint, *(file.parent for file in checkpoint.rglob("*"))}:
        _sync(folder)
    (checkpoint / COMPLETE).touch()
    _sync(checkpoint)


def check_seal(checkpoint: Path, patterns: Iterable[str] = ("*",), needed: bool = False) -> None:
    """DamagedCheckpoint where a file of ``checkpoint`` whose name fits one of ``patterns`` is not as it was written.

    A checkpoint without a list, as earlier versions wrote it, passes; where a list is ``needed`` it does not.
    """
    files = listed(checkpoint)
    if files is None:
        if needed:
            raise DamagedCheckpoint(
                f"{checkpoint} holds no {MANIFEST}, the list of its files: it was damaged, or written by a version "
                "before that list, which this one cannot go on from"
            )
        return
    chosen = {name: wrote for name, wrote in files.items() if any(fnmatch.fnmatch(name, each) for each in patterns)}
    check_sizes(checkpoint, chosen)
    for name, digest in _digests(checkpoint, list(chosen)).items():
        if digest != chosen[name]["blake2b"]:
            raise DamagedCheckpoint(f"{checkpoint} is damaged: {name} holds other bytes than were written")


def listed(checkpoint: Path) -> dict[str, dict[str, Any]] | None:
    """The list of a checkpoint's files: bytes and digest by name; None where it has none."""
    try:
        files = json.loads((checkpoint / MANIFEST).read_text(encoding="utf-8"))["files"]
        return {
            str(name): {"bytes": int(each["bytes"]), "blake2b": str(each["blake2b"])} for name, each in files.items()
        }
    except FileNotFoundError:
        return None
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise DamagedCheckpoint(f"{checkpoint} is damaged: its {MANIFEST} cannot be read") from error


def check_sizes(checkpoint: Path, files: dict[str, dict[str, Any]]) -> None:
    """DamagedCheckpoint where one of ``files`` is missing or has another size than was written."""
    for name, wrote in files.items():
        path = checkpoint / name
        found = path.stat().st_size if path.is_file() else None
        if found != wrote["bytes"]:
            has = "is missing" if found is None else f"has {found:,} bytes instead of {wrote['bytes']:,}"
            raise DamagedCheckpoint(f"{checkpoint} is damaged: {name} {has}")


def is_whole(checkpoint: Path) -> bool:
    """Whether a checkpoint was written to its end.

    One with its list and all files of their sizes was, also where a kill or a copy left its mark out.
    """
    if (checkpoint / COMPLETE).exists():
        return True
    try:
        files = listed(checkpoint)
        check_sizes(checkpoint, files or {})
    except DamagedCheckpoint:
        return False
    return files is not None


def check_weights(checkpoint: Path) -> None:
    """The same for the files that loading the policy reads; a checkpoint that did not change is read once."""
    manifest = checkpoint / MANIFEST
    if manifest.exists():
        _check_weights(checkpoint, manifest.stat().st_mtime_ns)


@functools.cache
def _check_weights(checkpoint: Path, written: int) -> None:
    check_seal(checkpoint, WEIGHTS)


def _digests(folder: Path, names: list[str]) -> dict[str, str]:
    with ThreadPoolExecutor(THREADS) as pool:
        return dict(zip(names, pool.map(lambda name: _digest(folder / name), names), strict=True))


def _digest(path: Path) -> str:
    made = hashlib.blake2b(digest_size=16)
    with path.open("rb", buffering=0) as file:
        while block := file.read(BLOCK):
            made.update(block)
    return made.hexdigest()


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
