"""The demo: watch GRPO teach a tiny policy to answer questions over databases that it has never seen.

    sqale-grpo demo [CONFIG ...] [seed=1] [section.key=value ...]

Corpus, policy, evaluation before, GRPO, evaluation after on test schemas, and a table of both. A demo that was
stopped is taken up where it stood; a finished one is left alone, and the next goes into a folder of its own.
"""

import argparse
import dataclasses
import json
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from sqale_grpo.env.files import write_whole
from sqale_grpo.settings.check import ConfigError
from sqale_grpo.settings.keys import Config
from sqale_grpo.settings.load import load_config, save_config, split_words
from sqale_grpo.settings.run_folder import CONFIG, latest_checkpoint, run_folder

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


def write_summary(path: Path, summary: dict[str, Any]) -> None:
    """Write the summary whole: it marks a finished demo."""
    write_whole(path, json.dumps(summary))


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


def main(arguments: list[str] | None = None) -> int:
    """Run the demo of the given configuration files (default: ``demo``) and overrides."""
    parser = argparse.ArgumentParser(
        prog="sqale-grpo demo", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("inputs", nargs="*", metavar="CONFIG | section.key=value", help="files, then overrides")
    files, overrides = split_words(parser.parse_args(arguments).inputs)
    config, unfinished = choose_folder(load_config(files or ["demo"], overrides))
    console = Console()
    started = time.monotonic()
    # Late, so that a wrong argument is answered before torch is loaded.
    from sqale_grpo.demo.initial import policy_path
    from sqale_grpo.evaluate.metrics import run_difference
    from sqale_grpo.evaluate.records import SUMMARY as EVALUATED
    from sqale_grpo.evaluate.records import read_records
    from sqale_grpo.evaluate.runner import run_evaluation
    from sqale_grpo.report.page import write_report
    from sqale_grpo.settings.of_run import run_evaluation_config
    from sqale_grpo.train.run import run, set_up_libraries

    set_up_libraries(config)
    folder = run_folder(config)
    seconds: dict[str, float] = {}

    def timed(stage: str, make: Any) -> Any:
        since = time.monotonic()
        value = make()
        seconds[stage] = time.monotonic() - since
        return value

    def evaluated(name: str, model: str | Path) -> Path:
        asked = run_evaluation_config(config, name, model)
        return timed(name, lambda: run_evaluation(asked, folder / "evaluations" / name, console))

    console.rule("corpus and policy")
    path = timed("policy", lambda: policy_path(config, console))
    console.rule("before")
    folder.mkdir(parents=True, exist_ok=True)
    save_config(config, folder / CONFIG)
    before = evaluated("before", path)
    console.rule("GRPO")
    timed("train", lambda: run(config, unfinished, console))
    console.rule("after")
    trained = latest_checkpoint(folder)
    assert trained is not None, "a finished run has a checkpoint"
    after = evaluated("after", trained)
    difference, interval = run_difference(read_records(before), read_records(after))
    summary = {
        "before": json.loads((before / EVALUATED).read_text()),
        "after": json.loads((after / EVALUATED).read_text()),
        "difference": difference,
        "interval": interval,
        "seconds": {"total": time.monotonic() - started, **seconds},
        "seed": config.seed,
    }
    # Before the summary, which marks a finished demo: one that is stopped here is taken up again.
    report = write_report([folder], folder / "report.html")
    write_summary(folder / SUMMARY, summary)
    show(console, summary)
    console.print(f"read it in a browser: {report}", markup=False)
    console.print(
        f"the run lies in {folder}: episodes/*.parquet, metrics.jsonl, checkpoint-*/, evaluations/*/, {SUMMARY}",
        markup=False,
    )
    return 0
