"""``sqale-grpo corpus new FOLDER SOURCE…``: a folder that trains, from databases and questions as people have them.

The folder is there whole or not at all. It holds a SQLite file a source, ``questions.jsonl`` and
``questions_test.jsonl``; ``proposed.jsonl`` where no questions were given; ``left_out.jsonl`` where some were not
taken.
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path

from sqale_grpo.corpus.own.keys import FoundKey, find_keys
from sqale_grpo.corpus.own.propose import propose
from sqale_grpo.corpus.own.question_files import AskedQuestion, json_line, read_questions
from sqale_grpo.corpus.own.sources import NamedSource, read_sources
from sqale_grpo.corpus.own.split import is_test, new_id
from sqale_grpo.corpus.own.sqlite_file import SqliteFile
from sqale_grpo.corpus.own.tables import SourceTable
from sqale_grpo.corpus.own.take import LeftOut, Made, take
from sqale_grpo.corpus.own.transpile import check_dialect
from sqale_grpo.corpus.own.views import make_views
from sqale_grpo.corpus.own.write import Written, write_database
from sqale_grpo.corpus.question import CorpusError
from sqale_grpo.env.files import whole_folder

TRAIN, TEST, PROPOSED, LEFT_OUT = "questions.jsonl", "questions_test.jsonl", "proposed.jsonl", "left_out.jsonl"


@dataclass(frozen=True)
class Wishes:
    """What a person asks of a new corpus. ``dialect``: of the questions' SQL, None: that of the sources."""

    questions: tuple[Path, ...] = ()
    dialect: str | None = None
    rows: int | None = None
    test_share: float = 0.2
    proposals: int = 60
    encoding: str | None = None
    workers: int = 1


@dataclass
class NewDatabase:
    """What came of a source."""

    db_id: str
    written: Written
    keys: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass
class NewCorpus:
    """What was made."""

    folder: Path
    databases: list[NewDatabase]
    train: int
    test: int
    left_out: list[LeftOut]
    proposed: int


Choose = Callable[[str, list[FoundKey]], list[FoundKey]]


def make_corpus(
    folder: Path, words: Sequence[str], wishes: Wishes, choose: Choose, told: Callable[[str], None]
) -> NewCorpus:
    """Make the corpus. ``choose`` picks among the keys that were found in a database; ``told`` gets what goes on.

    Raises CorpusError for everything wrong in the input, before or after which no folder is there.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise CorpusError(
            f"{folder} is there already and not empty: name another folder, or add questions to it with "
            f"`sqale-grpo corpus add {folder} FILE`"
        )
    sources = read_sources(list(words))
    db_ids = tuple(source.db_id for source in sources)
    dialect = check_dialect(wishes.dialect) if wishes.dialect else None
    asked = [each for path in wishes.questions for each in read_questions(path, db_ids, wishes.encoding)]
    with whole_folder(folder) as place, ExitStack() as stack:
        made, databases = {}, []
        for source in sources:
            database, new = _make_database(source, place, wishes, choose, told, stack)
            made[source.db_id] = database
            databases.append(new)
        taken, left = _take(asked, made, dialect)
        if asked and not taken:
            raise CorpusError(
                f"none of the {len(asked)} questions can be taken; {left[0].asked.place}: {left[0].reason}"
            )
        train, test = write_questions(place, taken, wishes.test_share)
        if left:
            (place / LEFT_OUT).write_text("".join(map(left_line, left)), encoding="utf-8")
        proposed = 0 if asked else _propose(place, made, wishes, told)
        stack.close()
        for scratch in place.glob(".*.scratch*"):
            scratch.unlink()
    return NewCorpus(folder, databases, train, test, left, proposed)


def _make_database(
    source: NamedSource,
    place: Path,
    wishes: Wishes,
    choose: Choose,
    told: Callable[[str], None],
    stack: ExitStack,
) -> tuple[Made, NewDatabase]:
    told(f"reading {source.db_id}")
    opened = stack.enter_context(closing(source.open(place, wishes.encoding)))
    path = place / f"{source.db_id}.sqlite"
    tables = opened.tables()
    if not tables:
        raise CorpusError(f"{source.db_id} has no tables: name another source")
    told(f"{source.db_id}: looking for keys")
    found = choose(source.db_id, find_keys(opened, tables))
    tables = [_with_found(table, found) for table in tables]
    if isinstance(opened, SqliteFile):
        written = opened.finish(tables, wishes.rows)
        notes = []
    else:
        written = write_database(opened, tables, path, wishes.rows, lambda name: told(f"{source.db_id}: {name}"))
        notes = make_views(opened, tables, written.cut, path)
    keyless = [table.name for table in tables if not table.primary_key and not table.unique]
    if keyless:
        listed = ", ".join(keyless[:5]) + (f" and {len(keyless) - 5} more" if len(keyless) > 5 else "")
        notes.append(f"without a key, so that no row of it can be named: {listed}")
    if written.cut:
        notes.append(f"cut to {wishes.rows:,} rows and those that others refer to: {', '.join(sorted(written.cut))}")
    new = NewDatabase(source.db_id, written, list(map(str, found)), [*opened.notes, *notes])
    return Made(path, opened, tables, written.cut), new


def _with_found(table: SourceTable, found: Sequence[FoundKey]) -> SourceTable:
    return table.with_keys(*(each.key for each in found if each.table == table.name))


def _take(
    asked: Sequence[AskedQuestion], made: dict[str, Made], dialect: str | None
) -> tuple[list[AskedQuestion], list[LeftOut]]:
    """Each question by the dialect of its own source, where none was named."""
    taken, left = [], []
    for db_id, database in made.items():
        mine = [each for each in asked if each.db_id == db_id]
        engine = database.source.dialect or "sqlite"
        spoken = dialect or engine
        if mine and spoken not in ("sqlite", engine):
            raise CorpusError(
                f"the SQL is {spoken} and {db_id} is {engine}, so nothing can tell whether a translation returns the "
                f"same rows: give SQL in the dialect of the source, or the {spoken} database itself as the source"
            )
        kept, refused = take(mine, {db_id: database}, spoken)
        taken += kept
        left += refused
    return taken, left


def write_questions(place: Path, questions: Sequence[AskedQuestion], share: float) -> tuple[int, int]:
    """Append the questions to the two files, those that are there already left out; how many train, how many test."""
    counts = [0, 0]
    known = {line for name in (TRAIN, TEST) for line in _lines(place / name)}
    for asked in questions:
        number = asked.question_id or new_id(asked.db_id, asked.question, asked.sql)
        line = json_line(asked.record(asked.sql, number))
        if line in known:
            continue
        known.add(line)
        test = is_test(asked.db_id, asked.sql, share)
        with (place / (TEST if test else TRAIN)).open("a", encoding="utf-8") as file:
            file.write(line)
        counts[test] += 1
    return counts[0], counts[1]


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines(keepends=True) if path.is_file() else []


def left_line(left: LeftOut) -> str:
    """A line of left_out.jsonl."""
    asked = left.asked
    return json_line({"place": asked.place, "reason": left.reason, "question": asked.question, "sql": asked.sql})


def _propose(place: Path, made: dict[str, Made], wishes: Wishes, told: Callable[[str], None]) -> int:
    lines = []
    for db_id, database in made.items():
        told(f"{db_id}: proposing questions")
        for each in propose(db_id, database.path, wishes.proposals, wishes.workers):
            number = new_id(db_id, each.question, each.sql)
            record = {"question_id": number, "db_id": db_id, "question": each.question, "sql": each.sql}
            lines.append(json_line(record))
    (place / PROPOSED).write_text("".join(lines), encoding="utf-8")
    return len(lines)
