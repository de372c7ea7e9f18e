"""``python -m sqale_grpo.sweep``: the same as ``sqale-grpo sweep``."""

import sys

from sqale_grpo.commands import run_package

if __name__ == "__main__":
    sys.exit(run_package("sweep", __package__))
