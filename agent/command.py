"""``sqale-grpo ask --model MODEL --db FILE --question TEXT``: ask a policy; ``agent build``: the single file.

    sqale-grpo ask --model exports/ada --db shop.sqlite --question "How many orders are late?" --trace
    sqale-grpo ask --model NAME --backend openai --url http://127.0.0.1:8080/v1 --db shop.sqlite --question TEXT
    sqale-grpo agent build [--out build/sqale_agent.py] [--prompts FILE]

``build`` writes ``sqale_agent.py``, the agent as one file, with the recipe's prompts and settings. An export holds its
own, with the prompts and settings of its run.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from sqale_grpo.agent import ask
from sqale_grpo.agent.bundle import NAME, write_agent
from sqale_grpo.agent.settings import SETTINGS
from sqale_grpo.env.errors import UserError
from sqale_grpo.env.prompts import load_prompts


def main(arguments: Sequence[str] | None = None) -> int:
    """Ask the agent, or build its single file. Raises UserError."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    return build(words[1:]) if words[:1] == ["build"] else ask.main(words)


def build(arguments: Sequence[str]) -> int:
    """Write the single file and say where it lies."""
    parser = argparse.ArgumentParser(
        prog="sqale-grpo agent build", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("build") / NAME, help="the file to write")
    parser.add_argument("--prompts", type=Path, help="JSON file of prompts (default: the project's own)")
    options = parser.parse_args(arguments)
    try:
        write_agent(options.out, load_prompts(options.prompts), SETTINGS)
    except ValueError as error:
        raise UserError(str(error)) from error
    print(options.out)
    return 0
