"""``sqale-grpo corpus add FOLDER FILE…``: more questions for a corpus that is there, split as the first ones were."""

from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from tempfile import TemporaryDirectory

from sqale_grpo.corpus.files import SUFFIXES
from sqale_grpo.corpus.own.new import write_questions
from sqale_grpo.corpus.own.question_files import read_questions
from sqale_grpo.corpus.own.sources import read_sources
from sqale_grpo.corpus.own.take import LeftOut, Made, take
from sqale_grpo.corpus.own.transpile import check_dialect
from sqale_grpo.corpus.question import CorpusError


def add_questions(
    folder: Path, files: Sequence[Path], share: float, dialect: str, words: Sequence[str], encoding: str | None
) -> tuple[int, int, list[LeftOut]]:
    """How many questions train, how many test, and what is not taken.

    SQL of another ``dialect`` than SQLite's needs the database that it was written for, among the sources ``words``.
    Raises CorpusError; nothing is added then.
    """
    if not folder.is_dir():
        raise CorpusError(f"there is no folder {folder}: make one with `sqale-grpo corpus new {folder} SOURCE`")
    known = {path.stem: path for place in (folder, folder / "databases") for path in _databases(place)}
    if not known:
        raise CorpusError(f"{folder} holds no SQLite file: make it with `sqale-grpo corpus new {folder} SOURCE`")
    dialect = check_dialect(dialect)
    asked = [each for file in files for each in read_questions(file, tuple(sorted(known)), encoding)]
    if dialect == "sqlite":
        train, test = write_questions(folder, asked, share)
        return train, test, []
    sources = {source.db_id: source for source in read_sources(list(words))}
    needed = sorted({each.db_id for each in asked} - sources.keys())
    if needed:
        raise CorpusError(
            f"the SQL is {dialect}: name the database that it was written for, {needed[0]}=SOURCE, so that the rows of "
            "both engines can be compared"
        )
    with TemporaryDirectory(prefix="sqale-add-") as scratch, ExitStack() as stack:
        made = {}
        for db_id in {each.db_id for each in asked}:
            opened = stack.enter_context(closing(sources[db_id].open(Path(scratch), encoding)))
            if opened.dialect != dialect:
                raise CorpusError(f"the SQL is {dialect} and {db_id} is {opened.dialect or 'files'}: name its source")
            made[db_id] = Made(known[db_id], opened, opened.tables(), frozenset())
        taken, left = take(asked, made, dialect)
    train, test = write_questions(folder, taken, share)
    return train, test, left


def _databases(place: Path) -> list[Path]:
    return [path for path in sorted(place.rglob("*")) if path.suffix in SUFFIXES] if place.is_dir() else []
