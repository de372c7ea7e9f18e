"""``python -m sqale_grpo.env``: the same as ``sqale-grpo env``."""

import sys

from sqale_grpo.commands import run_package

if __name__ == "__main__":
    sys.exit(run_package("env", __package__))
