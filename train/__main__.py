"""``python -m train CONFIG... [section.key=value ...] [--dry-run] [--resume]``: train as the configuration says.

Files are merged left to right, overrides last; ``config=FILE`` is one more file. ``--dry-run`` prints the plan and
loads no model.
"""

import argparse
import sys

from rich.console import Console

from corpus import CorpusError
from reward.gold import GoldError
from train.config_check import ConfigError
from train.config_docs import keys_markdown
from train.config_load import load_words, split_words, to_yaml
from train.plan import print_plan
from train.preflight import check_prompts
from train.shape import batch_shape, is_main_process, launched_processes


def main(arguments: list[str] | None = None) -> int:
    """The command line; what is wrong in the configuration or the data is one sentence on stderr, exit status 2."""
    options = _parser().parse_intermixed_args(arguments)
    try:
        return _run(options)
    except (ConfigError, CorpusError, GoldError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted; --resume goes on from the last checkpoint", file=sys.stderr)
        return 130


def _run(options: argparse.Namespace) -> int:
    if options.keys:
        print(keys_markdown(), end="")
        return 0
    config = load_words(options.inputs)
    if not split_words(options.inputs)[0]:
        raise ConfigError("no config file given; start from configs/recipe.yaml or configs/demo.yaml")
    batch_shape(config, launched_processes())
    check_prompts(config)
    console = Console(quiet=not is_main_process())
    console.print(to_yaml(config), markup=False, highlight=False)
    if options.dry_run:
        print_plan(config, console)
        return 0
    # Late, so that a plan and every error above come without torch.
    from train.rollout.vllm_server import ServerError
    from train.run import run

    try:
        run(config, options.resume, console)
    except ServerError as error:
        print(f"error: {error}; see to the server, then go on with --resume", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m train", description=__doc__)
    parser.add_argument("inputs", nargs="*", metavar="CONFIG | section.key=value", help="YAML files, then overrides")
    parser.add_argument("--dry-run", action="store_true", help="print the plan and stop")
    parser.add_argument("--resume", action="store_true", help="go on from the last checkpoint in the run's folder")
    parser.add_argument("--keys", action="store_true", help="print every key with its default, source and meaning")
    return parser


if __name__ == "__main__":
    sys.exit(main())
