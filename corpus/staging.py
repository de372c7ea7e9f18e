"""The work in progress of ``prepare``: one SQLite file beside the result, safe against a kill at any moment.

Every record of the source is written here first, then the verdicts, a database at a time; a second start goes on
with the databases that have none.
"""

import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sqale_grpo.corpus import reasons
from sqale_grpo.corpus.gold import Choice, Verdict
from sqale_grpo.corpus.question import RawQuestion
from sqale_grpo.corpus.workers import Result

_SCHEMA = """
CREATE TABLE IF NOT EXISTS state (name TEXT PRIMARY KEY, value TEXT);
CREATE TABLE IF NOT EXISTS questions (
    number INTEGER PRIMARY KEY, question_id TEXT, db_id TEXT, phrasings TEXT, evidence TEXT, gold_sql TEXT,
    difficulty TEXT, judged INTEGER, dropped TEXT, detail TEXT, gold_tables TEXT, n_rows INTEGER, unparsed INTEGER,
    unstable TEXT, choice TEXT);
CREATE TABLE IF NOT EXISTS databases (
    db_id TEXT PRIMARY KEY, tables INTEGER, foreign_keys INTEGER, rows INTEGER, bytes INTEGER, error TEXT);
"""
_JUDGE = (
    "UPDATE questions SET judged = 1, dropped = ?, detail = ?, gold_tables = ?, n_rows = ?, unparsed = ?, unstable = ?,"
    " choice = ?"
    " WHERE number = ?"
)
NOT_WANTED = 2  # in the column ``judged``, whose 0 is a question that is to be judged
OF_THE_RECORD = (reasons.NO_PHRASING, reasons.NO_GOLD, reasons.IMPOSSIBLE, reasons.DUPLICATE)


@dataclass(frozen=True)
class Staged:
    """A judged question."""

    raw: RawQuestion
    verdict: Verdict


class Staging:
    """The staging file. For one thread."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._db = sqlite3.connect(path, isolation_level=None)
        self._db.execute("PRAGMA synchronous = NORMAL")
        self._db.executescript(_SCHEMA)

    def close(self) -> None:
        self._db.close()

    def delete(self) -> None:
        """Close and remove the file: the prepared folder is complete."""
        self.close()
        for suffix in ("", "-journal", "-wal", "-shm"):
            Path(f"{self.path}{suffix}").unlink(missing_ok=True)

    def start_over(self) -> None:
        """Forget everything that was read, and the key it was read for."""
        self._db.executescript("BEGIN; DELETE FROM questions; DELETE FROM databases; DELETE FROM state; COMMIT;")

    def state(self, name: str) -> Any:
        """A value that was kept under ``name``, or None."""
        row = self._db.execute("SELECT value FROM state WHERE name = ?", (name,)).fetchone()
        return json.loads(row[0]) if row else None

    def set_state(self, name: str, value: Any) -> None:
        """Remember ``value`` under ``name`` until the folder is complete."""
        self._db.execute("INSERT OR REPLACE INTO state VALUES (?, ?)", (name, json.dumps(value)))

    def read(self, questions: Iterable[RawQuestion], *, ask: bool = True) -> None:
        """Store the records of the source, all or (after a kill) none, so that none is there twice.

        Without ``ask`` none of them is to be judged until ``want`` names it.
        """
        self._db.execute("BEGIN")
        self._db.execute("DELETE FROM questions")
        self._db.executemany(
            "INSERT INTO questions VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, '', '[]', 0, 0, '', '{}')",
            (_row(number, raw, 0 if ask else NOT_WANTED) for number, raw in enumerate(questions)),
        )
        self._db.execute("CREATE INDEX IF NOT EXISTS by_id ON questions (question_id)")
        self._db.execute(
            "UPDATE questions SET judged = 1, dropped = ? WHERE EXISTS (SELECT 1 FROM questions AS earlier"
            " WHERE earlier.question_id = questions.question_id AND earlier.number < questions.number)",
            (reasons.DUPLICATE,),
        )
        self._db.execute("CREATE INDEX IF NOT EXISTS still_open ON questions (db_id, number) WHERE judged = 0")
        self._db.execute("INSERT OR REPLACE INTO state VALUES ('read', 'true')")
        self._db.execute("COMMIT")
        self._write_ahead()

    def _write_ahead(self) -> None:
        """From here on transactions are small and many: with a write-ahead log none of them waits for the disk."""
        self._db.execute("PRAGMA journal_mode = WAL")

    def count(self, *, judged: bool = False) -> int:
        """How many records were read, or judged so far."""
        condition = "WHERE judged = 1" if judged else ""
        return self._db.execute(f"SELECT count(*) FROM questions {condition}").fetchone()[0]

    def progress(self) -> tuple[int, int]:
        """How many questions are to be judged in all, and how many of them are."""
        rows = dict(self._db.execute("SELECT judged, count(*) FROM questions GROUP BY 1"))
        return rows.get(0, 0) + rows.get(1, 0), rows.get(1, 0)

    def open_databases(self) -> set[str]:
        """Ids of databases with questions that are not judged yet."""
        return {db_id for (db_id,) in self._db.execute("SELECT DISTINCT db_id FROM questions WHERE judged = 0")}

    def open_questions(self, db_id: str) -> tuple[tuple[int, str], ...]:
        """(number, gold SQL) of the questions of a database that are not judged yet."""
        query = "SELECT number, gold_sql FROM questions WHERE db_id = ? AND judged = 0 ORDER BY number"
        return tuple(self._db.execute(query, (db_id,)))

    def measurable(self) -> Iterator[tuple[int, str, str]]:
        """(number, gold SQL, difficulty) of every record that could be asked, in the order of the source."""
        marks = ", ".join("?" * len(OF_THE_RECORD))
        query = f"SELECT number, gold_sql, difficulty FROM questions WHERE dropped NOT IN ({marks}) ORDER BY number"
        return self._db.execute(query, OF_THE_RECORD)

    def verdicts(self) -> Iterator[tuple[int, str, str, tuple[float, ...]]]:
        """(number, why it is dropped, why it is unstable, luck by copies) of every question that is judged."""
        query = "SELECT number, dropped, unstable, choice FROM questions WHERE judged = 1"
        return ((number, *why, _choice(choice).luck) for number, *why, choice in self._db.execute(query))

    def want(self, numbers: Iterable[int]) -> None:
        """Have these questions judged, and no other that is not judged yet."""
        self._db.execute("BEGIN")
        self._db.execute("UPDATE questions SET judged = ? WHERE judged = 0", (NOT_WANTED,))
        query = "UPDATE questions SET judged = 0 WHERE number = ? AND judged = ?"
        self._db.executemany(query, ((number, NOT_WANTED) for number in numbers))
        self._db.execute("COMMIT")

    def kept_numbers(self) -> Iterator[int]:
        """Numbers of the kept questions, in the order of the source."""
        query = "SELECT number FROM questions WHERE judged = 1 AND dropped = '' ORDER BY number"
        return (number for (number,) in self._db.execute(query))

    def counted(self) -> set[str]:
        """Ids of the databases whose figures are known."""
        return {db_id for (db_id,) in self._db.execute("SELECT db_id FROM databases")}

    def keep(self, db_id: str, result: Result) -> None:
        """Store what came of one database, in one transaction."""
        self._db.execute("BEGIN")
        self.set_state("worked", True)
        facts = result.facts
        if facts is not None:
            values = (db_id, facts.tables, facts.foreign_keys, facts.rows, facts.bytes, result.error)
            self._db.execute("INSERT OR REPLACE INTO databases VALUES (?, ?, ?, ?, ?, ?)", values)
        if result.error:
            self._drop(reasons.BAD_DATABASE, result.error, db_id)
        self._db.executemany(_JUDGE, [_judged(number, verdict) for number, verdict in result.verdicts.items()])
        self._db.execute("COMMIT")

    def drop_rest(self, place: Callable[[str], str]) -> None:
        """Drop the questions whose database the source does not hold; ``place`` says where it should lie."""
        self._db.execute("BEGIN")
        for db_id in self.open_databases():
            self._drop(reasons.NO_DATABASE, f"no SQLite file for {db_id!r} at {place(db_id)}", db_id)
        self._db.execute("COMMIT")

    def _drop(self, reason: str, detail: str, db_id: str) -> None:
        update = "UPDATE questions SET judged = 1, dropped = ?, detail = ? WHERE db_id = ? AND judged = 0"
        self._db.execute(update, (reason, detail, db_id))

    def questions(self, *, dropped: bool) -> Iterator[Staged]:
        """The records that are dropped, or that are kept, with their verdicts, in the order of the source."""
        condition = f"judged = 1 AND dropped {'!=' if dropped else '='} ''"
        query = f"SELECT * FROM questions WHERE {condition} ORDER BY number"
        for row in self._db.execute(query):
            _, question_id, db_id, phrasings, evidence, gold_sql, difficulty, _, reason, detail, tables, *rest = row
            raw = RawQuestion(question_id, db_id, tuple(json.loads(phrasings)), gold_sql, evidence, difficulty)
            n_rows, unparsed, unstable, choice = rest
            kept = Verdict(reason, detail, tuple(json.loads(tables)), n_rows, bool(unparsed), unstable, _choice(choice))
            yield Staged(raw, kept)

    def summary(self) -> dict[str, Any]:
        """Counts: read, kept, dropped by reason, and what is notable about the kept ones."""
        kept = "FROM questions WHERE judged = 1 AND dropped = ''"
        (one,) = self._db.execute(f"SELECT count(*), sum(n_rows = 0), sum(unparsed) {kept}")
        return {
            "read": self.count(),
            "not_drawn": self._db.execute(f"SELECT count(*) FROM questions WHERE judged = {NOT_WANTED}").fetchone()[0],
            "kept": one[0],
            "databases": len(self.databases()),
            "dropped": self._counts("dropped", "FROM questions WHERE dropped != ''"),
            "empty_gold": one[1] or 0,
            "tables_by_authorizer": one[2] or 0,
            "unstable": self._counts("unstable", f"{kept} AND unstable != ''"),
            "missing_copies": self._counts("choice ->> 'missing'", f"{kept} AND choice ->> 'missing' != ''"),
        }

    def _counts(self, column: str, rows: str) -> dict[str, int]:
        return dict(self._db.execute(f"SELECT {column}, count(*) {rows} GROUP BY 1 ORDER BY 2 DESC, 1"))

    def databases(self) -> list[tuple[str, int, int, int, int]]:
        """(db_id, tables, foreign keys, rows, bytes) of every database that a kept question asks about."""
        query = (
            "SELECT db_id, tables, foreign_keys, rows, bytes FROM databases"
            " WHERE db_id IN (SELECT db_id FROM questions WHERE judged = 1 AND dropped = '') ORDER BY db_id"
        )
        return self._db.execute(query).fetchall()


def _row(number: int, raw: RawQuestion, judged: int) -> tuple:
    missing = reasons.NO_PHRASING if not raw.phrasings else reasons.NO_GOLD if not raw.gold_sql.strip() else ""
    dropped = raw.dropped or missing
    phrasings = json.dumps([_storable(text) for text in raw.phrasings], ensure_ascii=False)
    texts = map(_storable, (raw.evidence, raw.gold_sql, raw.difficulty))
    return (
        number,
        _storable(raw.question_id),
        _storable(raw.db_id),
        phrasings,
        *texts,
        1 if dropped else judged,
        dropped,
    )


def _judged(number: int, v: Verdict) -> tuple:
    tables = json.dumps(v.tables, ensure_ascii=False)
    choice = json.dumps(asdict(v.choice) if v.choice != Choice() else {})
    return (v.dropped, v.detail, tables, v.n_rows, v.unparsed, v.unstable, choice, number)


def _choice(text: str) -> Choice:
    found: dict[str, Any] = json.loads(text)
    if not found:
        return Choice()
    return Choice(tuple(found["seeds"]), found["missing"], found["wrong"], tuple(found["paid"]))


def _storable(text: str) -> str:
    """The text with a question mark for each lone surrogate: neither SQLite nor Parquet holds one."""
    return text.encode("utf-8", "replace").decode("utf-8")
