"""``python -m sqale_grpo.train``: the same as ``sqale-grpo train``."""

import sys

from sqale_grpo.commands import run_package

if __name__ == "__main__":
    sys.exit(run_package("train", __package__))
