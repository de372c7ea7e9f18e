"""``python -m sqale_grpo.report``: the same as ``sqale-grpo report``."""

import sys

from sqale_grpo.commands import run_package

if __name__ == "__main__":
    sys.exit(run_package("report", __package__))
