"""The address of a server, ``postgresql://USER:PASSWORD@HOST:PORT/DATABASE``, and how it is shown: without password."""

import os
from dataclasses import dataclass
from urllib.parse import parse_qs, unquote, urlsplit

from sqale_grpo.corpus.question import CorpusError

POSTGRES = ("postgresql", "postgres")
MYSQL = ("mysql", "mariadb")
PASSWORD = {"postgres": "PGPASSWORD", "mysql": "MYSQL_PWD"}  # environment variables, as these servers' own clients


@dataclass(frozen=True)
class Address:
    """``kind``: postgres or mysql. ``socket``: the folder or file of a Unix socket, from ``?host=`` or ``?socket=``."""

    kind: str
    host: str
    port: int
    user: str | None
    password: str | None
    database: str
    socket: str | None

    def __str__(self) -> str:
        return f"{self.kind}://{self.socket or f'{self.host}:{self.port}'}/{self.database}"


def is_address(word: str) -> bool:
    """Whether a word of the command line names a server."""
    return word.partition("://")[0].lower() in (*POSTGRES, *MYSQL)


def read_address(word: str) -> Address:
    """The parts of an address. Raises CorpusError, which does not repeat the password."""
    scheme = word.partition("://")[0].lower()
    kind, usual = ("postgres", 5432) if scheme in POSTGRES else ("mysql", 3306)
    shape = f"{scheme}://USER@HOST:PORT/DATABASE"
    try:
        parts = urlsplit(word)
        port = parts.port or usual
    except ValueError as error:
        raise CorpusError(f"the address of the {kind} server cannot be read ({error}): write it as {shape}") from None
    database = unquote(parts.path.lstrip("/"))
    if not database or "/" in database:
        raise CorpusError(f"the address of the {kind} server names no database: write it as {shape}")
    options = parse_qs(parts.query)
    sockets = [*options.get("host", []), *options.get("socket", [])]
    return Address(
        kind,
        parts.hostname or "localhost",
        port,
        unquote(parts.username) if parts.username else None,
        unquote(parts.password) if parts.password else os.environ.get(PASSWORD[kind]),
        database,
        sockets[0] if sockets else None,
    )
