"""``sqale-grpo train CONFIG... [section.key=value ...] [--dry-run] [--resume]``: train as the configuration says.

Files are merged left to right, overrides last; ``config=FILE`` is one more file. ``--dry-run`` prints the plan and
loads no model.
"""

import argparse

from rich.console import Console

from sqale_grpo.rollout.policy_path import resolve_policy
from sqale_grpo.settings.check import ConfigError
from sqale_grpo.settings.corpora import check_prepared, gold_limit
from sqale_grpo.settings.docs import keys_markdown
from sqale_grpo.settings.files import read_prompts
from sqale_grpo.settings.load import load_words, split_words, to_yaml
from sqale_grpo.settings.shape import batch_shape, is_main_process, launched_processes
from sqale_grpo.train.plan import print_plan


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
    console = Console(quiet=not is_main_process())
    console.print(to_yaml(config), markup=False, highlight=False)
    if options.dry_run:
        print_plan(config, console)
        return 0
    resolve_policy(config.model.path)
    if config.corpus.source is None:
        check_prepared(config.corpus, config.corpus.split, gold_limit(config, config.corpus.split))
    console.print("loading torch, transformers and trl: some ten seconds", style="dim")
    # Late, so that a plan and every error above come without torch.
    from sqale_grpo.train.next_steps import next_lines
    from sqale_grpo.train.run import run

    run(config, options.resume, console)
    console.print("\n".join(next_lines(config)), markup=False, highlight=False, soft_wrap=True)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="sqale-grpo train", description=(__doc__ or "").replace("``", "`"))
    parser.add_argument("inputs", nargs="*", metavar="CONFIG | section.key=value", help="YAML files, then overrides")
    parser.add_argument("--dry-run", action="store_true", help="print the plan and stop")
    parser.add_argument("--resume", action="store_true", help="go on from the last checkpoint in the run's folder")
    parser.add_argument("--keys", action="store_true", help="print every key with its default, source and meaning")
    return parser
