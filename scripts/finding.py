"""The paper's question in miniature: one base policy, one recipe, three corpora, three sizes of schema.

    python scripts/finding.py [--jobs 2] [--page docs/finding.md] [ablations=true] [section.key=value ...]

Builds the base policy, runs configs/sweep/demo_corpora.yaml, evaluates the base policy and every run on the large
corpus' test questions, and writes the results into the page. Stopped at any moment, the same command goes on.
"""

import argparse
import multiprocessing
import os
import signal
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from sqale_grpo.env.errors import UserError
from sqale_grpo.env.files import check_place, hold_folder
from sqale_grpo.env.program import die_with, run_program
from sqale_grpo.rollout.policy_path import resolve_policy
from sqale_grpo.settings.check import ConfigError
from sqale_grpo.settings.evaluation import EvaluationConfig, with_names
from sqale_grpo.settings.keys import Config
from sqale_grpo.settings.load import load_config
from sqale_grpo.settings.of_run import run_evaluation_config
from sqale_grpo.sweep.command import read_runs, run_all, sweep_files
from sqale_grpo.sweep.comparison import compare, write_comparison
from sqale_grpo.sweep.file import SweepRun
from sqale_grpo.sweep.finding_page import (
    BASE,
    SIZES,
    FindingResults,
    around,
    evaluation_folder,
    policy_of,
    size_table,
    write_page,
)
from sqale_grpo.sweep.state import check_folders, standing

SWEEP = "configs/sweep/demo_corpora.yaml"
TESTED = ["configs/demo.yaml", "configs/finding.yaml", "configs/corpus/demo_large.yaml"]
BENCHMARK = "demo_large"


class EvaluationKilled(UserError):
    """A process was ended from outside."""

    exit_status = 1


def main(arguments: list[str] | None = None) -> int:
    """0 when every run is finished and evaluated, 1 when one failed. Raises UserError for a mistake in the words."""
    options = _parser().parse_intermixed_args(arguments)
    console = Console()
    try:
        return find(options.sweep, options.inputs, options.jobs, options.page, console)
    except BrokenProcessPool as error:
        raise EvaluationKilled(
            "a process of an evaluation was killed (no memory left?); the same command goes on"
        ) from error


def find(sweep: str, inputs: list[str], jobs: int, page: Path, console: Console) -> int:
    """Everything, in order; what is there already is left as it is."""
    started = time.monotonic()
    files, overrides = sweep_files([sweep, *inputs])
    runs = read_runs(files, overrides)
    check_folders(runs)
    check_place(page, "--page", ConfigError, folder=False)
    around(page)  # refuses a page without a place for the results now, not after the last run
    tested = load_config(TESTED, overrides)
    folder = Path(tested.output) / f"sweep-{Path(sweep).stem}"
    with hold_folder(folder, error=ConfigError):
        console.rule("base policy")
        base = base_policy(runs[0].config, console)
        refuse_other_base(runs)
        refuse_other_evaluations(evaluations(tested, runs, base))
        console.rule("training")
        run_all(runs, jobs, console)
        console.rule("evaluation")
        asked = evaluations(tested, runs, base)
        failed = evaluate_all(asked, jobs, console)
        results = FindingResults(runs, Path(tested.output), BENCHMARK, overrides)
        records = compare(runs)
        written = [*write_comparison(records, folder), *write_page(page, results)]
        console.print(size_table(results).rich())
        failed += [f"{record['name']}: {record['error']}" for record in records if record["state"] != "finished"]
    console.print(f"written: {', '.join(map(str, written))}", highlight=False, markup=False, soft_wrap=True)
    console.print(f"{(time.monotonic() - started) / 60:.0f} minutes, of this start alone")
    for text in failed:
        console.print(f"failed, the same command tries it again: {text}", highlight=False, markup=False, soft_wrap=True)
    return 1 if failed else 0


def base_policy(config: Config, console: Console) -> str:
    """The policy that every run begins with; ConfigError where there is none, or where it is under the floor."""
    return str(resolve_policy(config.model.path))


def refuse_other_base(runs: list[SweepRun]) -> None:
    """ConfigError where two runs would not begin with the same policy."""
    first = runs[0].config
    for run in runs[1:]:
        if (run.config.model, run.config.demo_policy) != (first.model, first.demo_policy):
            raise ConfigError(f"{run.name} would begin with another policy than {runs[0].name}: one base for all")


def refuse_other_evaluations(asked: list[EvaluationConfig]) -> None:
    """ConfigError where a folder holds another evaluation: of another base policy, or with other settings."""
    from sqale_grpo.evaluate.place import check_folder

    for each in asked:
        check_folder(with_names(each), Path(str(each.output)) / str(each.name))


def evaluations(tested: Config, runs: list[SweepRun], base: str) -> list[EvaluationConfig]:
    """What is to be evaluated: the base and every finished run, at every size, on the same questions."""
    policies = [(BASE, base, Path(tested.output) / BASE)]
    policies += [
        (policy_of(run), str(resolve_policy(run.folder)), run.folder)
        for run in runs
        if standing(run).state == "finished"
    ]
    return [evaluation(tested, *policy, schema) for policy in policies for schema in SIZES]


def evaluation(tested: Config, policy: str, model: str, folder: Path, schema: str) -> EvaluationConfig:
    """One policy at one size of schema, as ``tested`` says: corpus, questions, sampling of tokens."""
    place = evaluation_folder(folder, schema)
    return replace(
        run_evaluation_config(tested, policy, model),
        name=place.name,
        output=str(place.parent),
        benchmark=BENCHMARK,
        schema=schema,
        seed=EvaluationConfig().seed,  # one choice of questions for policies of all seeds
    )


def evaluate_all(asked: list[EvaluationConfig], jobs: int, console: Console) -> list[str]:
    """Play what is not finished, ``jobs`` beside each other. Returns the folders of those that failed."""
    failed = []
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, context, initializer=_end_with, initargs=(os.getpid(),)) as pool:
        played = [(each, pool.submit(play, each)) for each in asked]
        try:
            for number, (each, future) in enumerate(played, 1):
                where = f"{each.output}/{each.name}"
                try:
                    console.print(f"{number} of {len(asked)}: {future.result()}", highlight=False, soft_wrap=True)
                except (UserError, BrokenProcessPool):
                    raise
                except Exception as error:  # one evaluation's failure is shown, and leaves the others alone
                    failed.append(where)
                    console.print(f"{number} of {len(asked)}: {where} failed: {error}", highlight=False, soft_wrap=True)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return failed


def play(config: EvaluationConfig) -> str:
    """One evaluation, in a process of its own; says what came out."""
    from sqale_grpo.evaluate.evaluations import read_json
    from sqale_grpo.evaluate.records import SUMMARY
    from sqale_grpo.evaluate.runner import run_evaluation

    folder = run_evaluation(config, f"{config.output}/{config.name}", Console(quiet=True))
    summary = read_json(folder / SUMMARY)
    return f"{folder}: equivalent {summary['equivalent']:.1%}, every gold table opened {summary['table_recall']:.1%}"


def _end_with(parent: int) -> None:
    """Of a worker: ends with its parent, and at Ctrl-C at once and without a word."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    die_with(parent)()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python scripts/finding.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("inputs", nargs="*", metavar="section.key=value", help="overrides for every run")
    parser.add_argument("--sweep", default=SWEEP, metavar="FILE", help=f"sweep file of the runs ({SWEEP})")
    parser.add_argument("--jobs", type=int, choices=range(1, 65), default=2, metavar="N", help="runs at once (2)")
    parser.add_argument("--page", type=Path, default=Path("docs/finding.md"), help="page whose results are rebuilt")
    return parser


if __name__ == "__main__":
    sys.exit(run_program(main, "stopped; the same command goes on"))
