"""What training would make of questions: the verdicts of the preparation, and why a kept one is weak."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from sqale_grpo.corpus.gold import Verdict
from sqale_grpo.corpus.gold_worker import Job
from sqale_grpo.corpus.own.luck import lucky_variant
from sqale_grpo.corpus.workers import check_all
from sqale_grpo.env.limits import SqlError
from sqale_grpo.env.sandbox import Sandbox

SECONDS = 30.0  # of a gold query, as in preparation
PORTION = 50  # questions that a worker gets at a time


@dataclass(frozen=True)
class Weighed:
    """The verdict on a question; ``weak``: why it says little where it is kept, or nothing."""

    verdict: Verdict
    weak: str = ""


def judge(databases: Sequence[tuple[str, Path, list[str]]], workers: int | None = None) -> dict[str, list[Weighed]]:
    """For (db_id, file, queries): what becomes of each query, in order. Nothing is left on the disk."""
    workers = workers or os.cpu_count() or 1
    verdicts: dict[str, dict[int, Verdict]] = {db_id: {} for db_id, _, _ in databases}
    broken: dict[str, str] = {}
    with TemporaryDirectory(prefix="sqale-check-") as folder:
        copies = {db_id: Path(folder) / f"{number}.sqlite" for number, (db_id, _, _) in enumerate(databases)}
        originals = {db_id: path for db_id, path, _ in databases}
        jobs = (
            (db_id, Job(path, copies[db_id], tuple(enumerate(sqls))[start : start + PORTION], SECONDS, facts=False))
            for db_id, path, sqls in databases
            for start in range(0, len(sqls), PORTION)
        )
        for db_id, result in check_all(jobs, workers):
            verdicts[db_id].update(result.verdicts)
            if result.error:
                broken[db_id] = result.error.replace(f"{copies[db_id]}", f"{originals[db_id]}")
        return {
            db_id: _judged(copies[db_id], sqls, verdicts[db_id], broken.get(db_id, "")) for db_id, _, sqls in databases
        }


def _judged(path: Path, sqls: list[str], verdicts: dict[int, Verdict], broken: str) -> list[Weighed]:
    if broken:
        return [Weighed(Verdict("database cannot be used", broken)) for _ in sqls]
    with Sandbox(path) as sandbox:
        return [Weighed(verdicts[number], _weakness(sql, verdicts[number], sandbox)) for number, sql in enumerate(sqls)]


def _weakness(sql: str, verdict: Verdict, sandbox: Sandbox) -> str:
    """Why a stable gold says little: no rows, nothing but NULL, or a part that changes nothing."""
    if verdict.dropped or verdict.unstable:
        return ""
    if not verdict.n_rows:
        return "it returns no rows, as many wrong queries do"
    try:
        rows = sandbox.execute(sql).rows
    except SqlError:
        return ""
    if all(value is None for row in rows for value in row):
        return "it returns nothing but NULL, as many wrong queries do"
    missing = lucky_variant(sql, sandbox)
    return f"the same rows come without {missing}" if missing else ""
