"""``python -m sqale_grpo.evaluate``: the same as ``sqale-grpo evaluate``."""

import sys

from sqale_grpo.commands import run_package

if __name__ == "__main__":
    sys.exit(run_package("evaluate", __package__))
