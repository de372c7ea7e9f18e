"""Folders of evaluations for tests, written as the runner writes them."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from sqale_grpo.evaluate.metrics import summarize
from sqale_grpo.evaluate.records import CONFIG, FAILED, SUMMARY, write_records


def write_evaluation(
    folder: Path, rows: Sequence[dict[str, Any]], finished: bool = True, failed: int = 0, **config: Any
) -> Path:
    """An evaluation's folder with these rows; ``config`` are keys of its configuration."""
    stated = {"model": "some/model", "backend": "transformers", "schema": "full", "benchmark": "demo", **config}
    stated.setdefault("corpus", {"name": stated["benchmark"]})
    folder.mkdir(parents=True)
    (folder / CONFIG).write_text(yaml.safe_dump(stated))
    numbers: dict[str, int] = {}
    indexed = [{**each, "index": numbers.setdefault(each["question_id"], len(numbers))} for each in rows]
    write_records(folder, 0, [{**each, "tables": ["t"]} for each in indexed])
    if failed:
        (folder / FAILED).write_text(json.dumps({str(900 + number): "no answer" for number in range(failed)}))
    elif finished:
        summary = {**summarize(rows, 2e9), "parameters": 2e9}
        (folder / SUMMARY).write_text(json.dumps(summary))
    return folder
