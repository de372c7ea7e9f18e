"""Turn a corpus into an index and SQLite files, once: ``prepare`` reads, builds, runs every gold query, and sums up.

The work is kept in a staging file, so a run that was stopped in any way goes on where it was; ``prepared.json`` is
written last and holds the key of the inputs, so the same call on a complete folder returns at once.
"""

import json
import os
import sqlite3
from collections.abc import Iterator
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

from sqale_grpo.corpus.counter_choice import MOST as MOST_COPIES
from sqale_grpo.corpus.demo import DemoShape
from sqale_grpo.corpus.draws import DrawPlan
from sqale_grpo.corpus.earlier import FILES, database_digest, take_earlier
from sqale_grpo.corpus.files import file_name, fingerprint
from sqale_grpo.corpus.gold_worker import BUILD_SECONDS, Job
from sqale_grpo.corpus.preparation_shown import Progress, first_dropped, print_summary
from sqale_grpo.corpus.prepared import (
    CHOICES,
    DATABASES,
    DATABASES_SCHEMA,
    DROPPED,
    GROUP,
    INDEX,
    INDEX_SCHEMA,
    MARKER,
    MEASURED,
    MEASURED_SCHEMA,
    PreparedCorpus,
    open_prepared,
    read_marker,
    write_parquet,
)
from sqale_grpo.corpus.question import CorpusError, DatabaseRecipe, Source
from sqale_grpo.corpus.rounds import measured_rows, rounds
from sqale_grpo.corpus.sources import open_source
from sqale_grpo.corpus.staging import Staged, Staging
from sqale_grpo.corpus.workers import check_all
from sqale_grpo.env.connect import check_sqlite
from sqale_grpo.env.files import LOCK, hold_folder, write_whole
from sqale_grpo.env.limits import Limits

STAGING = "staging.work"
PORTION = 200  # questions that a worker process gets at a time
FORMAT = 3  # of the prepared folder; a change makes older folders be prepared anew
TRAIN_SECONDS = EVALUATION_SECONDS = 30.0  # the environment's time limits; what decides are the steps of a query


def prepare(
    name: str,
    source: str | Path | None,
    out: str | Path,
    *,
    split: str = "train",
    limit: int | None = None,
    workers: int | None = None,
    seconds: float | None = None,
    max_rows: int | None = None,
    steps: int | None = None,
    counter_databases: int = 0,
    seed: int = 42,
    shape: DemoShape | None = None,
    draws: DrawPlan | None = None,
    progress: bool = True,
) -> PreparedCorpus:
    """Prepare ``split`` of corpus ``name`` into the folder ``out`` and open it.

    ``source`` is the folder that holds the corpus (docs/corpora.md has the layouts). ``limit`` is the number of
    questions read. ``workers`` processes run gold queries (default: one a CPU). A gold query may take ``steps`` and,
    as a net above them, ``seconds``, and return ``max_rows`` rows (defaults: the environment's).
    ``draws``: execute what such a run draws, and build only its databases.
    ``counter_databases``: how many copies to choose for each question. ``seed`` and ``shape`` matter to the generated
    demo corpus alone. Idempotent and restartable. Raises CorpusError, and UserError for an old SQLite.
    """
    check_sqlite(sqlite3.sqlite_version_info)
    out = Path(out)
    bounds = {"limit": limit, "workers": workers, "seconds": seconds, "max_rows": max_rows, "steps": steps}
    for option, value in bounds.items():
        if value is not None and value <= 0:
            raise CorpusError(f"{option} is {value}: give a number above 0, or leave it out")
    seconds = seconds or (TRAIN_SECONDS if split == "train" else EVALUATION_SECONDS)
    key = {"format": FORMAT, "corpus": name, "split": split, "limit": limit, "seconds": seconds}
    if not 0 <= counter_databases <= MOST_COPIES:
        raise CorpusError(f"counter_databases is {counter_databases}: give 0 to {MOST_COPIES}")
    if counter_databases:
        key["counter_databases"] = counter_databases
    key["seed"] = seed if name == "demo" else None
    if max_rows not in (None, Limits.rows):
        key["max_rows"] = max_rows
    if steps not in (None, Limits.steps):
        key["steps"] = steps
    if name == "demo" and shape not in (None, DemoShape()):
        key["shape"] = json.loads(json.dumps(asdict(shape)))  # as the marker gives it back
    if draws is not None:
        key["draws"] = draws.key()
    _complete(out, key)  # a difference that shows before the source is opened, or the demo generated, is refused here
    opened = open_source(name, source, split, out, seed, shape)
    key["source"] = fingerprint(opened.files, opened.identity)
    if _complete(out, key):
        (out / STAGING).unlink(missing_ok=True)  # of a run that was killed at the very end
        return open_prepared(out)
    _make_folder(out, source if name != "demo" else None)
    with hold_folder(out, wait=True):
        if not _complete(out, key):  # another process may have done it while this one waited
            _prepare(opened, out, key, limit, workers or os.cpu_count() or 1, progress, draws)
    return open_prepared(out)


def _prepare(
    source: Source,
    out: Path,
    key: dict[str, Any],
    limit: int | None,
    workers: int,
    progress: bool,
    draws: DrawPlan | None,
) -> None:
    staging = Staging(out / STAGING)
    try:
        if staging.state("worked"):
            _require_same(staging.state("key"), key, out)
        elif staging.state("key") != key:  # a start that came to nothing, and its mistake was put right
            staging.start_over()
            _remove(out, "*.sqlite")
        staging.set_state("key", key)
        _remove(out, ".*.new*")  # of a worker that was killed while it built
        with Progress(progress) as bar:
            if not staging.state("read"):
                staging.read(bar.reading(islice(source.questions(), limit)), ask=draws is None)
            digests = _digests(source, staging, key)
            if digests:
                take_earlier(staging, out, key, digests)
            for _ in rounds(staging, draws):
                bar.judging(*staging.progress())
                for db_id, result in check_all(_jobs(source, staging, out, key), workers):
                    staging.keep(db_id, result)
                    bar.advance(len(result.verdicts))
                staging.drop_rest(source.place)
        summary = _write(staging, out, key, digests)
        if progress:
            print_summary(summary, out)
        staging.delete()
    finally:
        staging.close()


def _digests(source: Source, staging: Staging, key: dict[str, Any]) -> dict[str, str]:
    """Of the databases of one's own corpus; another one is published, and does not change with each question."""
    wanted = staging.open_databases() if key["corpus"] == "jsonl" else set()
    return {db_id: database_digest(recipe) for db_id, recipe in source.databases(wanted)} if wanted else {}


def _remove(out: Path, pattern: str) -> None:
    for path in (out / "databases").glob(pattern):
        path.unlink()


def _jobs(source: Source, staging: Staging, out: Path, key: dict[str, Any]) -> Iterator[tuple[str, Job]]:
    """(db_id, job) for the databases with open questions, in portions, so that a kill loses little work."""
    counted = staging.counted()
    for db_id, recipe in _recipes(source, out, staging.open_databases()):
        path = out / "databases" / file_name(db_id)
        questions = staging.open_questions(db_id)
        for start in range(0, len(questions), PORTION):
            portion = questions[start : start + PORTION]
            most, steps = key.get("max_rows", Limits.rows), key.get("steps", Limits.steps)
            copies = key.get("counter_databases", 0)
            facts = start == 0 and db_id not in counted
            yield db_id, Job(recipe, path, portion, key["seconds"], most, BUILD_SECONDS, facts, steps, copies)


def _recipes(source: Source, out: Path, wanted: set[str]) -> Iterator[tuple[str, DatabaseRecipe]]:
    """(db_id, recipe) of the wanted databases; one that is built is not looked for again, in gigabytes of schemas."""
    built = {db_id: path for db_id in wanted if (path := out / "databases" / file_name(db_id)).exists()}
    yield from sorted(built.items())
    if wanted - built.keys():
        yield from source.databases(wanted - built.keys())


def _write(staging: Staging, out: Path, key: dict[str, Any], digests: dict[str, str]) -> dict[str, Any]:
    """The dropped questions, the index, the databases and, last, the marker. Returns the summary."""
    with (out / DROPPED).open("w", encoding="utf-8") as file:
        file.writelines(
            json.dumps(_dropped(staged), ensure_ascii=False) + "\n" for staged in staging.questions(dropped=True)
        )
    summary = {"corpus": key["corpus"], "split": key["split"], **staging.summary()}
    if not summary["kept"]:
        staging.set_state("worked", False)  # of no use to whoever puts the mistake right
        why = ", ".join(f"{n} {reason}" for reason, n in summary["dropped"].items()) or "the source has no questions"
        example = first_dropped(out)
        why += f", such as {example['question_id']}: {example['detail']}" if example and example["detail"] else ""
        raise CorpusError(
            f"the corpus {key['corpus']!r} is empty, no question is left of {summary['read']}: {why}"
            f" (see {out / DROPPED})"
        )
    kept = (_index_row(staged, key) for staged in staging.questions(dropped=False))
    write_parquet(out / INDEX, INDEX_SCHEMA, kept, GROUP)
    write_parquet(out / MEASURED, MEASURED_SCHEMA, measured_rows(staging), 100_000)
    write_parquet(out / DATABASES, DATABASES_SCHEMA, staging.databases(), 10_000)
    if digests and "counter_databases" in key:
        lines = (_choice_line(staged) for staged in staging.questions(dropped=False))
        write_whole(out / CHOICES, "".join(lines))
    marker = {"key": key, "sqlite": sqlite3.sqlite_version, "summary": summary}
    write_whole(out / MARKER, json.dumps(marker | ({FILES: digests} if digests else {}), indent=1) + "\n")
    return summary


def _dropped(staged: Staged) -> dict[str, str]:
    raw, verdict = staged.raw, staged.verdict
    return {
        "question_id": raw.question_id,
        "db_id": raw.db_id,
        "reason": verdict.dropped,
        "detail": verdict.detail,
        "sql": raw.gold_sql,
    }


def _choice_line(staged: Staged) -> str:
    choice = asdict(staged.verdict.choice)
    return json.dumps({"db_id": staged.raw.db_id, "sql": staged.raw.gold_sql, **choice}, ensure_ascii=False) + "\n"


def _index_row(staged: Staged, key: dict[str, Any]) -> tuple:
    """A row in the order of INDEX_SCHEMA."""
    raw, verdict = staged.raw, staged.verdict
    choice = verdict.choice
    copies = (list(choice.seeds), list(choice.luck) if "counter_databases" in key else [])
    asked = (raw.question_id, raw.db_id, raw.phrasings, raw.evidence)
    return (
        *asked,
        raw.gold_sql,
        verdict.tables,
        raw.difficulty,
        verdict.n_rows,
        verdict.unstable,
        key["corpus"],
        *copies,
    )


def _complete(out: Path, key: dict[str, Any]) -> bool:
    """Whether ``out`` is prepared from these inputs. Raises CorpusError where it is prepared from others."""
    marker = read_marker(out)
    if marker is not None:
        _require_same(marker["key"], key, out)
    return marker is not None


def _require_same(old: dict[str, Any], new: dict[str, Any], out: Path) -> None:
    for name in {**new, **old}:
        if old.get(name) == new.get(name) or (name == "source" and "source" not in new):
            continue
        what = f"its {name} was {old.get(name)!r} and now is {new.get(name)!r}"
        if name == "source":
            what = "the files of the source have changed"
        raise CorpusError(
            f"{out} was prepared from other inputs, {what}: delete that folder, or name another one (--out of "
            "`sqale-grpo corpus prepare`, corpus.prepared of a run)"
        )


def _make_folder(out: Path, source: str | Path | None) -> None:
    """Make ``out``, or take it up again. Raises CorpusError where it holds something else or cannot be written."""
    if source is not None and out.is_dir() and Path(source).is_dir() and out.samefile(source):
        raise CorpusError(f"{out} is the folder of the source: name another --out")
    if not (out / STAGING).exists() and any((out / "databases").glob("*.sqlite")):
        raise CorpusError(f"{out / 'databases'} holds files that are not of this preparation: name another --out")
    try:
        (out / "databases").mkdir(parents=True, exist_ok=True)
        (out / LOCK).touch()
    except OSError as error:
        raise CorpusError(f"cannot write {out}: {error.strerror}; name another --out") from error
