"""``python -m sqale_grpo.corpus``: the same as ``sqale-grpo corpus``."""

import sys

from sqale_grpo.commands import run_package

if __name__ == "__main__":
    sys.exit(run_package("corpus", __package__))
