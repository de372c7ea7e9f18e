"""Build ``sqale_agent.py``, the agent as one file, with the recipe's prompts and settings.

    python scripts/build_agent.py [--out build/sqale_agent.py] [--prompts FILE]

An export holds its own, with its run's prompts and settings: scripts/export.py.
"""

import argparse
import sys
from pathlib import Path

from env.prompts import load_prompts
from train.agent.bundle import NAME, write_agent
from train.agent.settings import SETTINGS


def main(arguments: list[str] | None = None) -> int:
    """Write the file and say where it lies."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("build") / NAME, help="the file to write")
    parser.add_argument("--prompts", type=Path, help="JSON file of prompts (default: the project's own)")
    options = parser.parse_args(arguments)
    try:
        write_agent(options.out, load_prompts(options.prompts), SETTINGS)
    except (OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(options.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
