"""``python -m sqale_grpo.demo``: the same as ``sqale-grpo demo``."""

import sys

from sqale_grpo.commands import run_package

if __name__ == "__main__":
    sys.exit(run_package("demo", __package__))
