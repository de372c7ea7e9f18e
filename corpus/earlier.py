"""What an earlier preparation of the same folder knows: verdicts on queries over databases that have not changed since.

Whoever writes questions edits the file many times a day; only what changed is run again. A prepared database is never
written, so the new folder shares the earlier one's file.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from sqale_grpo.corpus import reasons
from sqale_grpo.corpus.files import SIDECARS, file_name, fingerprint
from sqale_grpo.corpus.gold import Choice, DatabaseFacts, Verdict
from sqale_grpo.corpus.prepared import CHOICES, DATABASES, DROPPED, INDEX, MARKER, read_marker
from sqale_grpo.corpus.question import CorpusError, DatabaseRecipe
from sqale_grpo.corpus.staging import Staging
from sqale_grpo.corpus.workers import Result

FILES = "files"  # of the marker: a digest for each database
OF_THE_QUERY = {
    *(reasons.FAILS, reasons.UNKNOWN_TABLE, reasons.TOO_MANY_ROWS, reasons.NO_TABLE),
    *(reasons.READS_VIEW, reasons.READS_SCHEMA),
}


def database_digest(recipe: DatabaseRecipe) -> str:
    """What changes when a database's file does; empty for one that is built."""
    if not isinstance(recipe, Path):
        return ""
    sides = (Path(f"{recipe}{side}") for side in SIDECARS)
    return fingerprint([recipe, *(side for side in sides if side.exists())])


def take_earlier(staging: Staging, out: Path, key: dict[str, Any], digests: dict[str, str]) -> int:
    """Judge what the newest preparation beside ``out`` with the same ``key``, except for its source, has judged.

    ``digests``: of the databases as they are now. Returns how many questions that were.
    """
    taken, chosen = 0, bool(key.get("counter_databases"))
    for folder, marker in _earlier(out, key):
        if chosen and not (folder / CHOICES).exists():  # prepared before choices were kept
            break
        known = marker[FILES]
        for db_id in sorted(staging.open_databases() & known.keys()):
            if digests.get(db_id) == known[db_id]:
                taken += _take(staging, folder, out, db_id)
        break
    return taken


def _earlier(out: Path, key: dict[str, Any]) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Complete folders beside ``out``, the newest first; the key tells them apart, and each database's digest."""
    markers = (path / MARKER for path in out.parent.iterdir() if path != out)
    found = [path for path in markers if os.path.isfile(path)]  # False for a neighbour that is closed to us
    for path in sorted(found, key=os.path.getmtime, reverse=True):
        folder = path.parent
        try:
            marker = read_marker(folder)
        except (CorpusError, OSError):
            continue
        if marker is not None and FILES in marker and {**marker["key"], "source": ""} == {**key, "source": ""}:
            yield folder, marker


def _take(staging: Staging, folder: Path, out: Path, db_id: str) -> int:
    verdicts, facts = _verdicts(folder, db_id), _facts(folder, db_id)
    database = folder / "databases" / file_name(db_id)
    found = {
        number: verdicts[sql] for number, sql in staging.open_questions(db_id) if sql in verdicts and database.exists()
    }
    if facts is None or not found:
        return 0
    try:
        os.link(database, out / "databases" / file_name(db_id), follow_symlinks=False)
    except OSError:
        return 0  # it is prepared like any other
    staging.keep(db_id, Result(facts, "", found))
    return len(found)


def _verdicts(folder: Path, db_id: str) -> dict[str, Verdict]:
    """By query. What the record itself was dropped for is not among them: it is another record now."""
    found, choices = {}, _choices(folder, db_id)
    for row in pq.read_table(folder / INDEX, filters=[("db_id", "=", db_id)]).to_pylist():
        found[row["gold_sql"]] = Verdict(
            tables=tuple(row["gold_tables"]),
            n_rows=row["n_rows"],
            unstable=row["unstable"],
            choice=choices.get(row["gold_sql"], Choice()),
        )
    for line in (folder / DROPPED).read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        if record["db_id"] == db_id and record["reason"] in OF_THE_QUERY:
            found[record["sql"]] = Verdict(record["reason"], record["detail"])
    return found


def _choices(folder: Path, db_id: str) -> dict[str, Choice]:
    """By query, how its counter-databases were chosen; none where the corpus has none."""
    if not (folder / CHOICES).exists():
        return {}
    lines = map(json.loads, (folder / CHOICES).read_text(encoding="utf-8").splitlines())
    return {
        line["sql"]: Choice(tuple(line["seeds"]), line["missing"], line["wrong"], tuple(line["paid"]))
        for line in lines
        if line["db_id"] == db_id
    }


def _facts(folder: Path, db_id: str) -> DatabaseFacts | None:
    rows = pq.read_table(folder / DATABASES, filters=[("db_id", "=", db_id)]).to_pylist()
    return DatabaseFacts(*(rows[0][name] for name in ("tables", "foreign_keys", "rows", "bytes"))) if rows else None
