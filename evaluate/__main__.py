"""``python -m evaluate``: evaluate a model, print the tables of evaluations, replay an episode.

python -m evaluate CONFIG... [key=value ...]     play an evaluation, or go on with it
python -m evaluate tables RUN...                 the card's tables from evaluations, in Markdown and CSV
python -m evaluate replay RUN --episode ID       one episode, turn by turn
"""

import sys
from importlib import import_module

COMMANDS = {"tables": "evaluate.tables", "replay": "evaluate.replay"}


def main(arguments: list[str] | None = None) -> int:
    """The command line; what is wrong with it is one sentence on stderr, exit status 2."""
    arguments = sys.argv[1:] if arguments is None else arguments
    name, rest = (arguments[0], arguments[1:]) if arguments and arguments[0] in COMMANDS else ("", arguments)
    module = import_module(COMMANDS.get(name, "evaluate.command"))
    return module.main(rest)


if __name__ == "__main__":
    sys.exit(main())
