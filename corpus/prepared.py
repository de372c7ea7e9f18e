"""A prepared corpus on disk: what training and evaluation read.

    DIR/index.parquet      a row a question: question_id, db_id, phrasings, evidence, gold_sql, gold_tables, difficulty,
                           n_rows, unstable, corpus, copies (seeds of the question's counter-databases),
                           luck (share of wrong mutants that are taken for right, with 0, 1 ... copies)
    DIR/databases.parquet  a row a database: db_id, tables, foreign_keys, rows, bytes
    DIR/measured.parquet   a row for every question that was read and could be asked, in the order of the source: length
                           of its masked gold SQL, difficulty, row in the index (-1: dropped, or never drawn)
    DIR/databases/         the SQLite files
    DIR/dropped.jsonl      what was left out, and why
    DIR/choices.jsonl      of one's own corpus with counter-databases: how each query's were chosen, for the next edit
    DIR/prepared.json      what it was made from and the summary; written last, so that it marks a complete folder

Opening reads the index's footer and no database; questions are read in small groups of rows as they are asked for.
"""

import json
import random
import sqlite3
import warnings
from collections.abc import Iterable
from functools import lru_cache
from itertools import islice
from pathlib import Path
from threading import Lock
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from sqale_grpo.corpus.draws import Measured, luck_with
from sqale_grpo.corpus.files import file_name
from sqale_grpo.corpus.question import CorpusError, Question, split_evidence
from sqale_grpo.env.files import whole_file

INDEX, DATABASES, DROPPED, MARKER = "index.parquet", "databases.parquet", "dropped.jsonl", "prepared.json"
MEASURED, CHOICES = "measured.parquet", "choices.jsonl"
GROUP = 256  # questions a row group: one is decoded in about a millisecond

INDEX_SCHEMA = pa.schema(
    [
        ("question_id", pa.string()),
        ("db_id", pa.string()),
        ("phrasings", pa.list_(pa.string())),
        ("evidence", pa.string()),
        ("gold_sql", pa.string()),
        ("gold_tables", pa.list_(pa.string())),
        ("difficulty", pa.string()),
        ("n_rows", pa.int32()),
        ("unstable", pa.string()),
        ("corpus", pa.string()),
        ("copies", pa.list_(pa.int32())),
        ("luck", pa.list_(pa.float32())),
    ]
)
DATABASES_SCHEMA = pa.schema(
    [
        ("db_id", pa.string()),
        ("tables", pa.int32()),
        ("foreign_keys", pa.int32()),
        ("rows", pa.int64()),
        ("bytes", pa.int64()),
    ]
)
MEASURED_SCHEMA = pa.schema([("length", pa.int32()), ("difficulty", pa.string()), ("row", pa.int32())])


class PreparedCorpus:
    """The questions of a prepared folder, by number. Safe to share between threads; pickles as its folder."""

    def __init__(self, directory: Path, marker: dict[str, Any]) -> None:
        self.directory = directory
        self.name: str = marker["key"]["corpus"]
        self.split: str = marker["key"]["split"]
        self.summary: dict[str, Any] = marker["summary"]
        self.plan: dict[str, Any] | None = marker["key"].get("draws")  # of the run whose questions alone are here
        self.source: str = marker["key"].get("source", "")
        try:
            self._file = pq.ParquetFile(directory / INDEX)
        except (OSError, pa.ArrowInvalid) as error:
            raise _damaged(directory / INDEX, str(error).split(". ")[0]) from error
        self._lock = Lock()  # a ParquetFile is not safe to read from two threads
        self._group = lru_cache(maxsize=16)(self._read_group)

    def __len__(self) -> int:
        return self._file.metadata.num_rows

    def __reduce__(self) -> tuple:
        return open_prepared, (self.directory,)

    def question(self, index: int, phrasing: random.Random | None = None, with_evidence: bool = False) -> Question:
        """Question number ``index``. ``phrasing`` draws one of its usable wordings uniformly; without it, the first.

        ``with_evidence``: in the wording that carries its evidence, if it has one, the two apart. Raises IndexError.
        """
        if not 0 <= index < len(self):
            raise IndexError(f"question {index} of {len(self)}")
        row = self._group(index // GROUP)[index % GROUP]
        texts = row["phrasings"]
        text, evidence = texts[0] if phrasing is None else phrasing.choice(texts), row["evidence"]
        if with_evidence:
            text, evidence = next(filter(None, map(split_evidence, texts)), (text, evidence))
        return Question(
            question_id=row["question_id"],
            db_id=row["db_id"],
            text=text,
            evidence=evidence,
            gold_sql=row["gold_sql"],
            gold_tables=tuple(row["gold_tables"]),
            difficulty=row["difficulty"],
            corpus=row["corpus"],
            copies=tuple(row["copies"]),
        )

    def column(self, name: str) -> list[Any]:
        """One column of the index, a value a question. Reads that column alone."""
        with self._lock:
            return self._file.read(columns=[name]).column(0).to_pylist()

    def gold_sqls(self) -> list[str]:
        """The gold SQL of every question."""
        return self.column("gold_sql")

    def unstable(self) -> list[str]:
        """Why the gold result of each question is unstable (a cause of ``corpus.reasons``), or empty."""
        return self.column("unstable")

    def luck(self, copies: int) -> list[float]:
        """For each question the share of wrong mutants that are taken for right with ``copies`` counter-databases.

        1 where that is not known: no copy could tell, or the corpus was prepared without them.
        """
        return [luck_with(shares, copies) for shares in self.column("luck")]

    def measured(self) -> Measured:
        """The lengths of all questions that were read, which the length buckets are made of. Raises CorpusError."""
        path = self.directory / MEASURED
        try:
            table = pq.read_table(path)
        except (OSError, pa.ArrowInvalid) as error:
            raise _damaged(path, str(error).split(". ")[0]) from error
        lengths, difficulties, rows = (table.column(name).to_pylist() for name in MEASURED_SCHEMA.names)
        return Measured(lengths, difficulties, rows)

    def stable_indices(self) -> list[int]:
        """The numbers of the questions that training uses by default: those whose gold result is stable."""
        return [index for index, cause in enumerate(self.unstable()) if not cause]

    def database(self, db_id: str) -> Path:
        """The SQLite file of a database. Raises CorpusError where it is gone."""
        path = self.directory / "databases" / file_name(db_id)
        if not path.exists():
            raise CorpusError(
                f"no database {path}: it was prepared and is gone; delete {self.directory} and prepare again"
            )
        return path

    def databases(self) -> list[dict[str, Any]]:
        """A record a database: db_id, tables, foreign_keys, rows (-1: not counted), bytes."""
        return pq.read_table(self.directory / DATABASES).to_pylist()

    def _read_group(self, group: int) -> list[dict[str, Any]]:
        with self._lock:
            return self._file.read_row_group(group).to_pylist()


def open_prepared(directory: str | Path) -> PreparedCorpus:
    """The prepared corpus in ``directory``. Raises CorpusError where it is missing, unfinished or damaged."""
    directory = Path(directory)
    marker = read_marker(directory)
    if marker is None:
        state = "was not finished" if directory.is_dir() and any(directory.iterdir()) else "does not exist or is empty"
        command = f"sqale-grpo corpus prepare --corpus NAME --source PATH --out {directory}"
        raise CorpusError(f"the prepared corpus {directory} {state}: run `{command}`, which goes on where it stopped")
    check_sqlite(directory, marker)
    return PreparedCorpus(directory, marker)


def check_sqlite(directory: Path, marker: dict[str, Any]) -> None:
    """Say where golds were judged by another SQLite: its queries take other steps, and may give other rows."""
    judged, here = marker.get("sqlite", sqlite3.sqlite_version), sqlite3.sqlite_version
    if judged.split(".")[:2] != here.split(".")[:2]:
        warnings.warn(
            f"{directory} was prepared with SQLite {judged}, and this is {here}: a query may take other steps and give "
            "other rows; prepare it anew where results must be comparable",
            RuntimeWarning,
            stacklevel=3,
        )


def read_marker(directory: Path) -> dict[str, Any] | None:
    """What ``prepared.json`` says, or None where the folder is not complete. Raises CorpusError for a damaged one."""
    path = directory / MARKER
    if not path.is_file():
        return None
    try:
        marker = json.loads(path.read_text())
        complete = all(name in marker["key"] for name in ("corpus", "split")) and "summary" in marker
    except (ValueError, KeyError, TypeError):
        complete = False
    if not complete:
        raise _damaged(path, "it does not hold what prepare writes")
    return marker


def _damaged(path: Path, why: str) -> CorpusError:
    return CorpusError(f"{path} is damaged: delete {path.parent} and prepare again ({why})")


def write_parquet(path: Path, schema: pa.Schema, rows: Iterable[tuple], group: int) -> None:
    """Write rows (tuples in the order of ``schema``) in row groups of ``group``. Atomic."""
    left = iter(rows)
    with whole_file(path) as file, pq.ParquetWriter(file, schema, compression="zstd") as writer:
        while batch := list(islice(left, group)):
            writer.write_table(_table(schema, batch), row_group_size=group)


def _table(schema: pa.Schema, rows: list[tuple]) -> pa.Table:
    columns = zip(*rows, strict=True)
    arrays = [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)
