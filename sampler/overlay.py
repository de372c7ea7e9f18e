"""Overlay: a large database with only the chosen tables, without a copy of any of its data.

The file gets a second name (a hard link), and beside that name lies a write-ahead log with the patch: SQLite reads a
page from the log where the log has it and from the file where not. So the cost is a few pages whatever the file's
size. The source is never written: a folder in the place of the log's shared memory makes every connection to the
overlay a reader, even one that asks for more.

An overlay must not be opened with ``immutable=1``: SQLite would then ignore the log and show the whole source. It does
so, too, in a process that holds the source open with a log of its own (SQLite keeps one index of logs for an inode).
"""

import secrets
import struct
from collections.abc import Sequence
from pathlib import Path

from sqale_grpo.sampler.catalog import blank_file, write_catalog
from sqale_grpo.sampler.source import SourceFile, open_source, select_entries
from sqale_grpo.sampler.views import with_views

_LOG_MAGIC = 0x377F0682  # checksums over little-endian words
_LOG_FORMAT = 3007000


def overlay_database(file: SourceFile, tables: Sequence[str], out: Path) -> None:
    """Write the log and the guard beside ``out``, which make a link of that name a database of exactly ``tables``."""
    log = write_ahead_log(file.page_size, patch_pages(file, tables, Path(f"{out}-catalog")))
    Path(f"{out}-wal").write_bytes(log)
    Path(f"{out}-shm").mkdir()


def patch_pages(file: SourceFile, tables: Sequence[str], scratch: Path) -> dict[int, bytes]:
    """Page number (from 1) to content: page 1 and new catalog pages behind the source's last page.

    They make all tables but the chosen ones unreachable, and no other page changes. SQLite writes them, into the file
    ``scratch`` of the source's length that is all holes; it is removed.
    """
    try:
        with open_source(file) as connection:
            selection = with_views(select_entries(connection, file, tables), file)
            blank_file(scratch, file, file.pages)
            write_catalog(connection, scratch, selection)
            connection.execute("COMMIT")
        with scratch.open("rb") as stream:
            first = stream.read(file.page_size)
            stream.seek(file.pages * file.page_size)
            rest = stream.read()
    finally:
        scratch.unlink(missing_ok=True)
    parts = [rest[start : start + file.page_size] for start in range(0, len(rest), file.page_size)]
    return {1: first} | dict(enumerate(parts, start=file.pages + 1))


def write_ahead_log(page_size: int, pages: dict[int, bytes]) -> bytes:
    """A log of one committed transaction that writes ``pages`` (sqlite.org/fileformat.html, section 4)."""
    salt = secrets.token_bytes(8)
    header = struct.pack(">4I", _LOG_MAGIC, _LOG_FORMAT, page_size, 0) + salt
    sums = _checksum(header, (0, 0))
    parts = [header, struct.pack(">2I", *sums)]
    first = pages[1]
    total = int.from_bytes(first[28:32], "big")
    content = pages | {1: first[:18] + b"\x02\x02" + first[20:]}  # version 2: this database has a log
    for place, (number, page) in enumerate(content.items(), start=1):
        head = struct.pack(">2I", number, total if place == len(content) else 0)
        sums = _checksum(head + page, sums)
        parts += [head, salt, struct.pack(">2I", *sums), page]
    return b"".join(parts)


def _checksum(data: bytes, sums: tuple[int, int]) -> tuple[int, int]:
    first, second = sums
    words = struct.unpack(f"<{len(data) // 4}I", data)
    for even, odd in zip(words[::2], words[1::2], strict=True):
        first = (first + even + second) & 0xFFFFFFFF
        second = (second + odd + first) & 0xFFFFFFFF
    return first, second
