"""SQaLe: two data sets joined on ``schema_id``, read through the ``sqale`` library (Hub names or local parquet).

``sqale.load_questions`` returns a list that also holds every parsed gold result, gigabytes for the train split;
here the library's own row reader is used, which yields the same records in flat memory.
"""

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import sqale
from sqale.deserialize import _iter_rows, _normalise, _parse_questions

from sqale_grpo.corpus.question import CorpusError, RawQuestion, Source, existing_folder

SPLITS = ("train", "test")
HUB = "hub"
# What the two folders are called: by us, by the library's README, and on the Hub.
QUERIES = ("queries", "sqale2_queries", "SQaLe-2-text-to-SQL-Queries")
SCHEMAS = ("schemas", "sqale2_schemas", "SQaLe-2-text-to-SQL-Schemas")
KEYS = {"schema_id", "sql", "full_schema", "schema_content"}  # of a release that has rows, in one table or two


def open_source(source: str | Path | None, split: str) -> Source:
    """A folder with ``queries/`` and ``schemas/`` (parquet a split), or ``hub`` for the published data sets.

    The two may bear the library's names, and a folder of one table, as SQaLe_2 was, holds both.
    ``owner/queries,owner/schemas`` names other Hub data sets of the same layout. Raises CorpusError.
    """
    if split not in SPLITS:
        raise CorpusError(f"SQaLe has no split {split!r}: choose one of {', '.join(SPLITS)}")
    names = _hub_names(source)
    if names:
        return _source(*names, split, files=(), identity=",".join(names))
    folder = existing_folder(source, "sqale")
    queries, schemas = (_part(folder, names) for names in (QUERIES, SCHEMAS))
    files = []
    for part in dict.fromkeys((queries, schemas)):
        found = sorted(p for ext in ("parquet", "arrow") for p in part.rglob(f"{split}*.{ext}"))
        if not found:
            raise CorpusError(f"no {split} parquet file in {part}: SQaLe needs queries/ and schemas/ in {folder}")
        files += found
    return _source(str(queries), str(schemas), split, files=tuple(files), identity="")


def _part(folder: Path, names: tuple[str, ...]) -> Path:
    """The folder of one of the two data sets; of both where one table is. Raises CorpusError for SQaLe 1."""
    found = next((folder / name for name in names if (folder / name).is_dir()), None)
    if found is not None:
        return found
    tables = sorted(folder.rglob("*.parquet"))
    keys = columns(tables[0]) if tables else set()
    if is_first_release(keys):
        raise CorpusError(
            f"{tables[0]} is SQaLe 1, whose databases have no rows, so no query can be run on them: download SQaLe 2, "
            "whose queries/ and schemas/ lie in two data sets (--source hub does it)"
        )
    return folder if keys >= KEYS else folder / names[0]


def columns(table: Path) -> set[str]:
    """The columns of a parquet file by their present names; none where it cannot be read."""
    try:
        return set(_normalise(dict.fromkeys(pq.read_schema(table).names)))
    except (OSError, pa.ArrowInvalid):
        return set()


def is_first_release(keys: Collection[str]) -> bool:
    """SQaLe 1 has a question's whole schema beside it, and no rows."""
    return {"schema", "question", "query"} <= set(keys) and "schema_content" not in keys


def _hub_names(source: str | Path | None) -> tuple[str, str] | None:
    if source is None or str(source) == HUB:
        return sqale.QUERIES_REPO, sqale.SCHEMAS_REPO
    queries, comma, schemas = str(source).partition(",")
    return (queries.strip(), schemas.strip()) if comma and not Path(source).exists() else None


def _source(queries: str, schemas: str, split: str, *, files: tuple[Path, ...], identity: str) -> Source:
    return Source(
        questions=lambda: _questions(queries, split),
        databases=lambda wanted: _databases(schemas, split, wanted),
        files=files,
        identity=identity,
    )


def _questions(queries: str, split: str) -> Iterator[RawQuestion]:
    for row in _rows(queries, split):
        texts = _parse_questions(row.get("questions"))
        styles = [*sqale.STYLES, *(style for style in texts if style not in sqale.STYLES)]
        usable = (texts[style].strip() for style in styles if sqale.is_usable_question(texts.get(style)))
        yield RawQuestion(
            question_id=str(row.get("question_id") or ""),
            db_id=str(row.get("schema_id") or ""),
            phrasings=tuple(dict.fromkeys(usable)),
            gold_sql=str(row.get("sql") or ""),
            difficulty=str(row.get("difficulty") or ""),
        )


def _databases(schemas: str, split: str, wanted: Collection[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    left = set(wanted)
    for row in _rows(schemas, split):
        schema_id = str(row.get("schema_id") or "")
        if schema_id in left:
            left.remove(schema_id)
            yield schema_id, {key: row.get(key) for key in ("full_schema", "schema_content")}
        if not left:
            return


def _rows(source: str, split: str) -> Iterator[dict[str, Any]]:
    try:
        yield from (_normalise(row) for row in _iter_rows(source, split))
    except (OSError, ValueError) as error:
        fix = "check the name and the connection, or give a folder that holds queries/ and schemas/"
        raise CorpusError(f"cannot read {source}, split {split} ({error}): {fix}") from error
