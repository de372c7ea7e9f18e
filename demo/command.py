"""The demo: watch GRPO teach a tiny policy to answer questions over databases that it has never seen.

    sqale-grpo demo [CONFIG ...] [seed=1] [section.key=value ...]
    sqale-grpo demo build-policy [--out FOLDER]        the policy that it starts from, made anew

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
from sqale_grpo.rollout.policy_path import resolve_policy
from sqale_grpo.settings.check import ConfigError
from sqale_grpo.settings.keys import Config
from sqale_grpo.settings.load import load_config, save_config, split_words
from sqale_grpo.settings.run_folder import CONFIG, run_folder
from sqale_grpo.settings.shape import batch_shape

SUMMARY, PARTNER_LOG = "summary.json", "partner.log"
PROCESSES = 2
BUILD = "build-policy"
ROWS = (
    ("equivalent", "equivalent", "{:.1%}"),
    ("robust", "right on copies too", "{:.1%}"),
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
        if key == "robust" and before[key] is after[key] is None:
            continue
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
    if arguments and arguments[0] == BUILD:
        from sqale_grpo.demo.build import main as build_main  # late: it loads torch

        return build_main(arguments[1:])
    parser = argparse.ArgumentParser(
        prog="sqale-grpo demo", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("inputs", nargs="*", metavar="CONFIG | section.key=value", help="files, then overrides")
    parser.add_argument("--processes", type=int, default=PROCESSES, help=f"that share the work ({PROCESSES})")
    given = parser.parse_args(arguments)
    files, overrides = split_words(given.inputs)
    config, unfinished = choose_folder(load_config(files or ["demo"], overrides))
    batch_shape(config, given.processes)  # a number that the batch does not divide by is answered at once
    console = Console()
    started = time.monotonic()
    # Late, so that a wrong argument is answered before torch is loaded.
    with console.status("loading torch"):
        from sqale_grpo.demo.background import play_experiment
        from sqale_grpo.demo.processes import partners
        from sqale_grpo.evaluate.metrics import run_difference
        from sqale_grpo.evaluate.records import SUMMARY as EVALUATED
        from sqale_grpo.evaluate.records import read_records
        from sqale_grpo.report.page import write_report
        from sqale_grpo.settings.corpora import open_corpus
        from sqale_grpo.train.run import set_up_libraries

    set_up_libraries(config)
    folder = run_folder(config)
    console.rule("corpus and policy")
    for split in (config.corpus.split, config.evaluate.split):
        open_corpus(config, split)
    console.print(f"policy: {resolve_policy(config.model.path)}", markup=False, highlight=False, soft_wrap=True)
    prepared = time.monotonic() - started
    folder.mkdir(parents=True, exist_ok=True)
    save_config(config, folder / CONFIG)
    with partners(given.processes, folder / CONFIG, unfinished, folder / PARTNER_LOG):
        before, after, spent = play_experiment(config, unfinished, console, 0, given.processes)
    seconds = {"preparation": prepared, **spent}
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
