"""The sources of ``corpus new``, ``[NAME=]SOURCE``: SQLite or DuckDB files, folders of CSV or Parquet, servers."""

import re
from dataclasses import dataclass
from pathlib import Path

from sqale_grpo.corpus.own.address import is_address, read_address
from sqale_grpo.corpus.own.duckdb_file import DuckdbFile
from sqale_grpo.corpus.own.mysql import MysqlDatabase
from sqale_grpo.corpus.own.postgres import PostgresDatabase
from sqale_grpo.corpus.own.sqlite_file import SqliteFile
from sqale_grpo.corpus.own.staged import SUFFIXES, StagedFiles
from sqale_grpo.corpus.own.tables import DatabaseSource
from sqale_grpo.corpus.question import CorpusError
from sqale_grpo.env.text import fold_name

SECONDS = 30.0  # that a query of ours may run on a source
_SQLITE, _DUCKDB = b"SQLite format 3\0", b"DUCK"
FORMS = "a SQLite file, a DuckDB file, a folder of CSV or Parquet files, postgresql://… or mysql://…"


@dataclass(frozen=True)
class NamedSource:
    """A source and the db_id that its database gets."""

    db_id: str
    word: str

    def open(self, folder: Path, encoding: str | None) -> DatabaseSource:
        """The source, opened; SQLite files are copied into ``folder``. Raises CorpusError."""
        copy = folder / f"{self.db_id}.sqlite"
        if is_address(self.word):
            address = read_address(self.word)
            kind = PostgresDatabase if address.kind == "postgres" else MysqlDatabase
            return kind(address, SECONDS)
        path = Path(self.word).expanduser()
        if path.is_dir() or path.suffix.lower() in SUFFIXES:
            return StagedFiles(path, folder / f".{self.db_id}.scratch", encoding)
        with path.open("rb") as file:
            start = file.read(16)
        if start.startswith(_SQLITE):
            return SqliteFile(path, copy)
        if start[8:12] == _DUCKDB:
            return DuckdbFile(path)
        hint = " (or an encrypted database)" if path.suffix in (".sqlite", ".db") else ""
        raise CorpusError(f"{path} is another kind of file{hint}: name {FORMS}")


def read_sources(words: list[str]) -> list[NamedSource]:
    """The sources by the words of the command line. Raises CorpusError for one that is not there, and for two names."""
    sources = [_named(word) for word in words]
    for source in sources:
        twins = [other.word for other in sources if fold_name(other.db_id) == fold_name(source.db_id)]
        if len(twins) > 1:
            raise CorpusError(
                f"{' and '.join(map(_shown, twins))} would both be the database {source.db_id!r}: name them, as in "
                f"{source.db_id}_2={_shown(twins[1])}"
            )
    return sources


def _named(word: str) -> NamedSource:
    given, equals, rest = word.partition("=")
    if equals and re.fullmatch(r"[\w.-]+", given) and not Path(word).exists():
        name, place = given, rest
    else:
        name, place = "", word
    if is_address(place):
        return NamedSource(name or read_address(place).database, place)
    path = Path(place).expanduser()
    if not path.exists():
        raise CorpusError(f"there is no {place}: name {FORMS}")
    name = name or (path.resolve().name if path.is_dir() else path.stem)
    return NamedSource(name, place)


def _shown(word: str) -> str:
    return str(read_address(word)) if is_address(word) else word
