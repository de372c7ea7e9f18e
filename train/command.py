"""``sqale-grpo train CONFIG... [section.key=value ...] [--dry-run | --preflight] [--resume]``: train as they say.

Files are merged left to right, overrides last; ``config=FILE`` is one more file. ``--dry-run`` prints the plan, looks
at what needs no model, and loads none; ``--preflight`` loads all, looks at kernels, engine, memory and disk under this
launch, and stops.
"""

import argparse
import os
import sys

from rich.console import Console

from sqale_grpo.env.files import check_place
from sqale_grpo.rollout.policy_path import resolve_policy
from sqale_grpo.settings.check import ConfigError
from sqale_grpo.settings.corpora import check_run_prepared
from sqale_grpo.settings.docs import keys_markdown
from sqale_grpo.settings.files import read_prompts
from sqale_grpo.settings.keys import Config
from sqale_grpo.settings.load import load_words, split_words, to_yaml
from sqale_grpo.settings.own import OWN, check_own_run
from sqale_grpo.settings.run_folder import run_folder
from sqale_grpo.settings.shape import batch_shape, is_main_process, launched_processes
from sqale_grpo.train.doctor import examine, launch_problem
from sqale_grpo.train.plan import print_plan
from sqale_grpo.train.preflight.table import decide, show


def main(arguments: list[str] | None = None) -> int:
    """Train, or print the plan or the keys. Raises UserError for a mistake in the configuration or the data."""
    options = _parser().parse_intermixed_args(arguments)
    if options.keys:
        print(keys_markdown(), end="")
        return 0
    config = load_words(options.inputs)
    if not split_words(options.inputs)[0]:
        raise ConfigError("no config file given; start from configs/recipe.yaml or configs/demo.yaml")
    batch_shape(config, launched_processes())
    read_prompts(config.env.prompts)
    check_place(run_folder(config), "output=", ConfigError)
    check_own_run(config)
    resolve_policy(config.model.path)
    if config.corpus.source is None and (config.corpus.name == OWN or not options.dry_run):
        check_run_prepared(config)
    console = Console(quiet=not is_main_process())
    console.print(to_yaml(config), markup=False, highlight=False)
    if options.dry_run:
        print_plan(config, console)
        rows = examine(config)
        show(rows, console, "examination")
        decide(rows, "the examination", "")
        return 0
    check_launch(console)
    choose_gpu(config, console)
    console.print("loading torch, transformers and trl: some ten seconds", style="dim")
    # Late, so that a plan and every error above come without torch.
    from sqale_grpo.train.breaks import Healing, check_restart, meet_anew, restarted, start_again
    from sqale_grpo.train.next_steps import next_lines
    from sqale_grpo.train.preflight.run import PreflightDone
    from sqale_grpo.train.run import run

    check_restart(run_folder(config))
    meet_anew()
    try:
        run(config, options.resume or restarted(), console, options.preflight)
    except Healing as error:
        start_again(list(sys.argv[2:] if arguments is None else arguments), error)
    except PreflightDone as done:
        console.print(str(done))
        return 0
    console.print("\n".join(next_lines(config)), markup=False, highlight=False, soft_wrap=True)
    return 0


def check_launch(console: Console) -> None:
    """ConfigError for a launch that cannot come together; one that waits for others says so."""
    processes, rank = launched_processes(), os.environ.get("RANK")
    if problem := launch_problem():
        raise ConfigError(f"{problem}: unset what an earlier launch has left, or start through scripts/launch")
    if processes > 1 and rank is None:
        raise ConfigError(
            f"WORLD_SIZE={processes} is set and RANK is not: unset WORLD_SIZE for one process, or start through "
            "scripts/launch"
        )
    if processes > 1:
        console.print(
            f"process {rank} of {processes} (WORLD_SIZE): it waits for the others at "
            f"{os.environ.get('MASTER_ADDR')}:{os.environ.get('MASTER_PORT')}",
            highlight=False,
        )


def choose_gpu(config: Config, console: Console) -> None:
    """Let a single process see one GPU: with several visible ones the trainer would split each pass over all of them.

    Before torch is imported, which then counts no other.
    """
    if launched_processes() > 1 or config.train.use_cpu:
        return
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    chosen = "0" if visible is None else visible.split(",")[0]
    if chosen != visible:
        os.environ["CUDA_VISIBLE_DEVICES"] = chosen
        if visible:
            console.print(f"one process: of the GPUs {visible} it uses {chosen}; several: scripts/launch", markup=False)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="sqale-grpo train", description=(__doc__ or "").replace("``", "`"))
    parser.add_argument("inputs", nargs="*", metavar="CONFIG | section.key=value", help="YAML files, then overrides")
    parser.add_argument("--dry-run", action="store_true", help="print the plan and stop")
    parser.add_argument(
        "--preflight", action="store_true", help="look at this machine for a minute, print a table and stop"
    )
    parser.add_argument("--resume", action="store_true", help="go on from the last checkpoint in the run's folder")
    parser.add_argument("--keys", action="store_true", help="print every key with its default, source and meaning")
    return parser
