"""``python -m sqale_grpo.reward``: the same as ``sqale-grpo reward``."""

import sys

from sqale_grpo.commands import run_package

if __name__ == "__main__":
    sys.exit(run_package("reward", __package__))
