"""Turn a corpus into an index and SQLite files, once: ``prepare`` reads, builds, runs every gold query, and sums up.

The work is kept in a staging file, so a run that was stopped in any way goes on where it was; ``prepared.json`` is
written last and holds the key of the inputs, so the same call on a complete folder returns at once.
"""

import fcntl
import json
import os
import queue
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

from corpus import reasons
from corpus.errors import CorpusError
from corpus.files import file_name
from corpus.fingerprint import fingerprint
from corpus.gold_worker import Job
from corpus.prepared import (
    DATABASES,
    DATABASES_SCHEMA,
    DROPPED,
    GROUP,
    INDEX,
    INDEX_SCHEMA,
    MARKER,
    PreparedCorpus,
    open_prepared,
    read_marker,
    write_parquet,
)
from corpus.progress import Progress, print_summary
from corpus.source import Source
from corpus.sources import open_source
from corpus.staging import Staging
from corpus.workers import GoldWorker, Result

FORMAT = 1  # of the prepared folder; a change makes older folders be prepared anew
TRAIN_SECONDS, EVALUATION_SECONDS = 5.0, 30.0  # the environment's time limits: a slower gold could never be matched


def prepare(
    name: str,
    source: str | Path | None,
    out: str | Path,
    *,
    split: str = "train",
    limit: int | None = None,
    workers: int | None = None,
    seconds: float | None = None,
    seed: int = 42,
    progress: bool = True,
) -> PreparedCorpus:
    """Prepare ``split`` of corpus ``name`` into the folder ``out`` and open it.

    ``source`` is the folder that holds the corpus (docs/corpora.md has the layouts). ``limit`` is the number of
    questions read. ``workers`` processes run gold queries (default: one a CPU). ``seconds`` is the time limit of a
    gold query (default: the environment's, 5 for the train split and 30 for others). ``seed`` matters to the
    generated demo corpus alone. Idempotent and restartable. Raises CorpusError.
    """
    out = Path(out)
    if limit is not None and limit < 1:
        raise CorpusError(f"limit is {limit}: give the number of questions to read, at least 1")
    opened = open_source(name, source, split, out, seed)
    seconds = seconds or (TRAIN_SECONDS if split == "train" else EVALUATION_SECONDS)
    key = {"format": FORMAT, "corpus": name, "split": split, "limit": limit, "seconds": seconds}
    key["source"] = fingerprint(opened.files, opened.identity)
    if _complete(out, key):
        return open_prepared(out)
    (out / "databases").mkdir(parents=True, exist_ok=True)
    with _only_one(out):
        if not _complete(out, key):  # another process may have done it while this one waited
            _prepare(opened, out, key, limit, workers or os.cpu_count() or 1, progress)
    return open_prepared(out)


def _prepare(source: Source, out: Path, key: dict[str, Any], limit: int | None, workers: int, progress: bool) -> None:
    staging = Staging(out / "staging.work")
    try:
        _require_same(staging.state("key") or key, key, out)
        staging.set_state("key", key)
        with Progress(progress) as bar:
            if not staging.state("read"):
                staging.read(bar.reading(islice(source.questions(), limit)))
            bar.judging(staging.count(), staging.count(judged=True))
            for db_id, result in _results(source, staging, out, key["seconds"], workers):
                staging.keep(db_id, result)
                bar.advance(len(result.verdicts))
            staging.drop_rest()
        summary = _write(staging, out, key)
        if progress:
            print_summary(summary, out)
        staging.delete()
    finally:
        staging.close()


def _results(source: Source, staging: Staging, out: Path, seconds: float, workers: int) -> Iterator[tuple[str, Result]]:
    """(db_id, result) of every database that is not done, as they come from the worker processes."""
    wanted = staging.open_databases()
    if not wanted:
        return
    idle: queue.SimpleQueue[GoldWorker] = queue.SimpleQueue()
    pool = [GoldWorker() for _ in range(min(workers, len(wanted)))]
    for worker in pool:
        idle.put(worker)

    def check(job: Job) -> Result:
        worker = idle.get()
        try:
            return worker.check(job)
        finally:
            idle.put(worker)

    with ThreadPoolExecutor(len(pool)) as threads:
        running: dict[Future[Result], str] = {}
        try:
            for db_id, recipe in source.databases(wanted):
                job = Job(recipe, out / "databases" / file_name(db_id), staging.open_questions(db_id), seconds)
                running[threads.submit(check, job)] = db_id
                if len(running) > len(pool):  # one more than can run: flat memory, and nobody waits
                    yield from _finished(running)
            while running:
                yield from _finished(running)
        finally:
            for worker in pool:
                worker.close()


def _finished(running: dict[Future[Result], str]) -> Iterator[tuple[str, Result]]:
    for future in wait(running, return_when=FIRST_COMPLETED).done:
        yield running.pop(future), future.result()


def _write(staging: Staging, out: Path, key: dict[str, Any]) -> dict[str, Any]:
    """The index, the dropped questions, the databases and, last, the marker. Returns the summary."""
    counts: Counter[str] = Counter()
    dropped: Counter[str] = Counter()
    unstable: Counter[str] = Counter()

    def rows() -> Iterator[tuple]:
        with (out / DROPPED).open("w", encoding="utf-8") as file:
            for staged in staging.questions():
                raw, verdict = staged.raw, staged.verdict
                counts["read"] += 1
                if verdict.dropped:
                    dropped[verdict.dropped] += 1
                    record = {"question_id": raw.question_id, "db_id": raw.db_id, "reason": verdict.dropped}
                    record |= {"detail": verdict.detail, "sql": raw.gold_sql}
                    file.write(json.dumps(record, ensure_ascii=False) + "\n")
                    continue
                counts["kept"] += 1
                counts["empty gold result"] += not verdict.n_rows
                counts["tables by authorizer"] += verdict.unparsed
                unstable.update([verdict.unstable] if verdict.unstable else [])
                yield (
                    *(raw.question_id, raw.db_id, list(raw.phrasings), raw.evidence, raw.gold_sql),
                    *(list(verdict.tables), raw.difficulty, verdict.n_rows, verdict.unstable, key["corpus"]),
                )

    kept = write_parquet(out / INDEX, INDEX_SCHEMA, rows(), GROUP)
    databases = staging.databases()
    write_parquet(out / DATABASES, DATABASES_SCHEMA, iter(databases), 10_000)
    summary = {
        "corpus": key["corpus"],
        "split": key["split"],
        "read": counts["read"],
        "kept": kept,
        "databases": len(databases),
        "dropped": dict(dropped.most_common()),
        "empty_gold": counts["empty gold result"],
        "tables_by_authorizer": counts["tables by authorizer"],
        "unstable": dict(unstable.most_common()),
    }
    if not kept:
        why = ", ".join(f"{reason} {n}" for reason, n in dropped.items()) or "the source has no questions"
        raise CorpusError(f"the corpus {key['corpus']!r} is empty, none of {counts['read']} questions is left: {why}")
    temporary = out / f".{MARKER}.new"
    temporary.write_text(json.dumps({"key": key, "summary": summary}, indent=1) + "\n")
    temporary.replace(out / MARKER)
    return summary


def _complete(out: Path, key: dict[str, Any]) -> bool:
    """Whether ``out`` is prepared from these inputs. Raises CorpusError where it is prepared from others."""
    marker = read_marker(out)
    if marker is not None:
        _require_same(marker["key"], key, out)
    return marker is not None


def _require_same(old: dict[str, Any], new: dict[str, Any], out: Path) -> None:
    different = [name for name in new if old.get(name) != new[name]]
    if not different:
        return
    name = different[0]
    what = "the files of the source" if name == "source" else f"{name} ({old.get(name)!r} there, {new[name]!r} asked for)"
    raise CorpusError(f"{out} was prepared from other inputs, {what} differ: delete the folder or name another --out")


@contextmanager
def _only_one(out: Path) -> Iterator[None]:
    """Hold the folder: a second process waits here until the first is done, or dead."""
    with (out / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
