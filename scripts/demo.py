"""The demo: watch GRPO teach a tiny policy to answer questions over databases that it has never seen.

    python scripts/demo.py configs/demo.yaml [seed=1] [section.key=value ...]

Corpus, policy, evaluation before, GRPO, evaluation after on test schemas, and a table of both. A demo that was
stopped is taken up where it stood; a finished one is left alone, and the next goes into a folder of its own.
"""

import dataclasses
import json
import sys
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from corpus import CorpusError
from train.config import Config
from train.config_check import ConfigError
from train.config_load import load_config, save_config
from train.folder import CONFIG, run_folder

SUMMARY = "summary.json"
ROWS = (
    ("equivalent", "equivalent", "{:.1%}"),
    ("executable", "executable, wrong", "{:.1%}"),
    ("parsable", "parsable", "{:.1%}"),
    ("invalid", "invalid", "{:.1%}"),
    ("reward", "reward", "{:.2f}"),
    ("table_recall", "every gold table opened", "{:.1%}"),
    ("literals_seen", "literals seen before the answer", "{:.1%}"),
    ("unstated_literals_seen", "… that the question does not state", "{:.1%}"),
    ("rounds", "rounds", "{:.1f}"),
    ("calls", "tool calls", "{:.1f}"),
)


def choose_folder(config: Config) -> tuple[Config, bool]:
    """The run's name with the seed, and whether an unfinished run of that name and configuration is to be taken up."""
    base, number = f"{config.name}-seed{config.seed}", 1
    while True:
        config = dataclasses.replace(config, name=base if number == 1 else f"{base}-{number}")
        folder = run_folder(config)
        if not (folder / CONFIG).exists():
            return config, False
        if not (folder / SUMMARY).exists() and is_saved(config, folder / CONFIG):
            return config, True
        number += 1


def is_saved(config: Config, path: Path) -> bool:
    """Whether ``path`` holds ``config``; an older version's keys need not be known any more."""
    try:
        return load_config([path]) == config
    except ConfigError:
        return False


def stored(path: Path, make: Any) -> Any:
    """The JSON value in ``path``; made by ``make`` and written where there is none yet."""
    if not path.exists():
        value = make()
        partial = path.with_suffix(".partial")
        partial.write_text(json.dumps(value))
        partial.replace(path)
    return json.loads(path.read_text())


def show(console: Console, summary: dict[str, Any]) -> None:
    """Print the table of before and after."""
    before, after = summary["before"], summary["after"]
    table = Table(title=f"{before['n']} questions over test schemas, seed {summary['seed']}")
    for column in ("", "before", "after"):
        table.add_column(column, justify="left" if not column else "right")
    for key, label, form in ROWS:
        table.add_row(label, *(form.format(side[key]) if side[key] is not None else "–" for side in (before, after)))
    for name in sorted(set(before["ended_by"]) | set(after["ended_by"])):
        table.add_row(f"ended by {name}", *(f"{side['ended_by'].get(name, 0):.1%}" for side in (before, after)))
    console.print(table)
    low, high = summary["interval"]
    console.print(
        f"difference {summary['difference']:+.1%}, 95% interval of the paired difference {low:+.1%} to {high:+.1%}"
    )
    seconds = "  ".join(f"{stage} {spent:.0f} s" for stage, spent in summary["seconds"].items())
    console.print(f"seconds: {seconds}")


def main(arguments: list[str]) -> None:
    """Run the demo of the given configuration files and overrides."""
    files = [a for a in arguments if "=" not in a]
    config, unfinished = choose_folder(load_config(files, [a for a in arguments if "=" in a]))
    console = Console()
    started = time.monotonic()
    # Late, so that a wrong argument is answered before torch is loaded.
    from evaluate.metrics import paired_difference, stable, summarize
    from evaluate.policy import evaluate_policy
    from train.data import open_corpus
    from train.policy_files import load_policy, load_tokenizer
    from train.run import policy_path, run, set_up_libraries

    set_up_libraries(config)
    folder = run_folder(config)
    seconds: dict[str, float] = {}

    def timed(stage: str, make: Any) -> Any:
        since = time.monotonic()
        value = make()
        seconds[stage] = time.monotonic() - since
        return value

    def evaluated(model: Any, tokenizer: Any) -> list[dict[str, Any]]:
        def on_progress(done: int) -> None:
            console.print(f"evaluated {done} of {config.evaluate.questions} test questions")

        return evaluate_policy(model, tokenizer, test_split, config, on_progress)

    console.rule("corpus and policy")
    test_split = open_corpus(config, config.evaluate.split)
    path = timed("policy", lambda: policy_path(config, console))
    tokenizer = load_tokenizer(path)
    console.rule("before")
    folder.mkdir(parents=True, exist_ok=True)
    save_config(config, folder / CONFIG)
    before = timed(
        "before", lambda: stored(folder / "before.json", lambda: evaluated(load_policy(config.model, path), tokenizer))
    )
    console.rule("GRPO")
    finished = timed("train", lambda: run(config, unfinished, console))
    console.rule("after")
    after = timed("after", lambda: stored(folder / "after.json", lambda: evaluated(finished.trainer.model, tokenizer)))
    difference, interval = paired_difference(
        [r["tier"] == "equivalent" for r in stable(before)], [r["tier"] == "equivalent" for r in stable(after)]
    )
    summary = {
        "before": summarize(before),
        "after": summarize(after),
        "difference": difference,
        "interval": interval,
        "seconds": {"total": time.monotonic() - started, **seconds},
        "seed": config.seed,
    }
    stored(folder / SUMMARY, lambda: summary)
    show(console, summary)
    console.print(f"the run lies in {folder}: episodes/*.parquet, metrics.jsonl, checkpoint-*/, {SUMMARY}")


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except (ConfigError, CorpusError) as error:
        sys.exit(f"error: {error}")
