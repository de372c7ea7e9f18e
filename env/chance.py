"""Chance: every random choice outside token sampling is a pure function of named keys."""

import hashlib
import random


def key_int(*key: int | str) -> int:
    """A 64-bit integer that depends on the key alone: equal in every process, on every machine.

    The parts are hashed with their types and lengths, so ("a", 1) and ("a1",) differ; ``hash()`` is
    not used because Python salts it a process. Raises TypeError for anything but int and str.
    """
    digest = hashlib.blake2b(digest_size=8)
    for part in key:
        if type(part) not in (int, str):
            raise TypeError(f"a chance key holds only int and str, not {part!r} of {type(part).__name__}")
        text = f"{type(part).__name__}:{part}".encode("utf-8", "surrogatepass")
        digest.update(len(text).to_bytes(8, "little") + text)
    return int.from_bytes(digest.digest(), "little")


def rng(*key: int | str) -> random.Random:
    """A random generator for one choice, e.g. ``rng("tables", seed, update, question_id)``.

    The first part names the choice, so that two choices of one question never share a stream.
    """
    return random.Random(key_int(*key))
