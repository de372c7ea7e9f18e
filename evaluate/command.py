"""``sqale-grpo evaluate``: evaluate a model, print the tables of evaluations, replay an episode.

sqale-grpo evaluate CONFIG... [key=value ...]     play an evaluation, or go on with it
sqale-grpo evaluate tables RUN...                 the card's tables from evaluations, in Markdown and CSV
sqale-grpo evaluate replay RUN --episode ID       one episode, turn by turn
"""

import sys
from importlib import import_module

COMMANDS = {"tables": "sqale_grpo.evaluate.tables", "replay": "sqale_grpo.evaluate.replay"}


def main(arguments: list[str] | None = None) -> int:
    """The command line; each part has its own."""
    arguments = sys.argv[1:] if arguments is None else arguments
    name, rest = (arguments[0], arguments[1:]) if arguments and arguments[0] in COMMANDS else ("", arguments)
    module = import_module(COMMANDS.get(name, "sqale_grpo.evaluate.play"))
    return module.main(rest)
