"""What a prepared folder remembers of its source: a change of any file gives another fingerprint."""

import hashlib
from collections.abc import Iterable
from pathlib import Path

from corpus.files import SIDECARS, SUFFIXES

READ_WHOLE = 64 << 20  # question files up to this many bytes count by content, wherever they lie and whenever written
_DATABASE = tuple(f"{suffix}{side}" for suffix in SUFFIXES for side in ("", *SIDECARS))


def fingerprint(files: Iterable[Path], identity: str = "") -> str:
    """A digest of the files: by content where that is quick, by size and time for databases and very large files."""
    digest = hashlib.blake2b(identity.encode(), digest_size=16)
    for path in files:
        status = path.stat()
        digest.update(f"\n{path.name} {status.st_size} ".encode())
        if status.st_size <= READ_WHOLE and not path.name.endswith(_DATABASE):
            digest.update(path.read_bytes())
        else:
            digest.update(str(status.st_mtime_ns).encode())
    return digest.hexdigest()
