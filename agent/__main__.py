"""``python -m sqale_grpo.agent``: the same as ``sqale-grpo agent``."""

import sys

from sqale_grpo.commands import run_package

if __name__ == "__main__":
    sys.exit(run_package("agent", __package__))
