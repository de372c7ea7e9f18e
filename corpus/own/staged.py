"""Files of rows (CSV, Parquet) as one database: read once into a scratch SQLite file, which then answers queries."""

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from sqale_grpo.corpus.own.csv_file import CsvFile
from sqale_grpo.corpus.own.csv_values import ColumnReader
from sqale_grpo.corpus.own.sqlite_file import OverSqlite
from sqale_grpo.corpus.own.tables import Column, Row, SourceTable
from sqale_grpo.corpus.own.values import plain, sqlite_type
from sqale_grpo.corpus.question import CorpusError
from sqale_grpo.env.text import fold_name, quote_name

SUFFIXES = (".csv", ".tsv", ".parquet")
BATCH = 10_000  # rows of a Parquet file at a time


@dataclass(frozen=True)
class _Rows:
    """A file's columns, its rows as SQLite stores them, and what was noticed."""

    columns: tuple[Column, ...]
    rows: Callable[[], Iterator[Row]]
    notes: tuple[str, ...] = ()


class StagedFiles(OverSqlite):
    """A folder of CSV and Parquet files, or one of them: a table a file, named after it. Raises CorpusError."""

    dialect = ""

    def __init__(self, place: Path, scratch: Path, encoding: str | None = None) -> None:
        files = [place] if place.is_file() else sorted(p for p in place.iterdir() if p.suffix.lower() in SUFFIXES)
        if not files:
            raise CorpusError(f"{place} holds no file that ends in {', '.join(SUFFIXES)}: name a folder of such files")
        self.notes: list[str] = []
        self._tables: list[SourceTable] = []
        self._indexed: set[tuple[str, tuple[str, ...]]] = set()
        self._sqlite = sqlite3.connect(scratch, isolation_level=None)
        try:
            self._sqlite.executescript("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;")
            for file in files:
                self._read(file, encoding)
        except BaseException:
            self._sqlite.close()
            raise

    def _read(self, file: Path, encoding: str | None) -> None:
        twin = next((t for t in self._tables if fold_name(t.name) == fold_name(file.stem)), None)
        if twin is not None:
            raise CorpusError(f"{file} and another file would both be the table {twin.name!r}: rename one of them")
        read = _parquet(file) if file.suffix.lower() == ".parquet" else _csv(file, encoding)
        table = SourceTable(file.stem, read.columns)
        self.notes += read.notes
        declared = ", ".join(f"{quote_name(column.name)} {column.kind}" for column in read.columns)
        marks = ", ".join("?" * len(read.columns))
        self._sqlite.execute("BEGIN")
        self._sqlite.execute(f"CREATE TABLE {self.quoted(table)} ({declared})")
        self._sqlite.executemany(f"INSERT INTO {self.quoted(table)} VALUES ({marks})", read.rows())
        self._sqlite.execute("COMMIT")
        self._tables.append(table)

    def tables(self) -> list[SourceTable]:
        """A table a file; the first column that could be a key is one (files declare none)."""
        return [self._with_key(table) for table in self._tables]

    def _with_key(self, table: SourceTable) -> SourceTable:
        for column in _key_candidates(table):
            name = quote_name(column)
            total, known, different = self._sqlite.execute(
                f"SELECT count(*), count({name}), count(DISTINCT {name}) FROM {self.quoted(table)}"
            ).fetchone()
            if total and total == known == different:
                return SourceTable(table.name, table.columns, (column,))
        return table

    def rows(self, table: SourceTable, limit: int | None) -> Iterator[Row]:
        """In the order of the file."""
        cut = "" if limit is None else f" LIMIT {limit}"
        return self._sqlite.execute(f"SELECT * FROM {self.quoted(table)} ORDER BY rowid{cut}")

    def rows_of(self, table: SourceTable, columns: Sequence[str], keys: Sequence[Row]) -> Iterator[Row]:
        """Rows by key, through an index that is made at the first call."""
        wanted = (table.name, tuple(columns))
        listed = ", ".join(map(quote_name, columns))
        if wanted not in self._indexed:
            self._sqlite.execute(
                f"CREATE INDEX {quote_name(f'by {len(self._indexed)}')} ON {self.quoted(table)} ({listed})"
            )
            self._indexed.add(wanted)
        condition = " AND ".join(f"{quote_name(column)} = ?" for column in columns)
        for key in keys:
            yield from self._sqlite.execute(f"SELECT * FROM {self.quoted(table)} WHERE {condition}", key)


def _key_candidates(table: SourceTable) -> Iterable[str]:
    """Columns that are keys by their name, then the first column of the table, where its type is a key's."""
    usual = {"id", "key", "code", f"{fold_name(table.name)}_id", f"{fold_name(table.name).removesuffix('s')}_id"}
    named = [column.name for column in table.columns if fold_name(column.name) in usual]
    first = [table.columns[0].name] if table.columns[0].kind in ("INTEGER", "TEXT") else []
    return dict.fromkeys([*named, *first])


def _csv(path: Path, encoding: str | None) -> _Rows:
    file = CsvFile(path, encoding)
    readers = [ColumnReader(file.separator == ";") for _ in file.heading]
    for _, texts in file.rows():
        for reader, text in zip(readers, texts, strict=True):
            reader.look(text)
    columns = tuple(Column(name, reader.kind) for name, reader in zip(file.heading, readers, strict=True))
    notes = tuple(
        f"{path.name}: the dates of {name!r} could be day first or month first, so they stay text"
        for name, reader in zip(file.heading, readers, strict=True)
        if reader.ambiguous
    )

    def rows() -> Iterator[Row]:
        for _, texts in file.rows():
            yield tuple(reader.value(text) for reader, text in zip(readers, texts, strict=True))

    return _Rows(columns, rows, notes)


def _parquet(path: Path) -> _Rows:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(path)
    except (pa.ArrowException, OSError) as error:
        raise CorpusError(f"{path} cannot be read as Parquet ({error}): write it anew") from None
    columns = tuple(Column(field.name, sqlite_type(str(field.type))) for field in file.schema_arrow)

    def rows() -> Iterator[Row]:
        for batch in file.iter_batches(BATCH):
            for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                yield tuple(map(plain, row))

    return _Rows(columns, rows)
