"""``python -m sqale_grpo.export``: the same as ``sqale-grpo export``."""

import sys

from sqale_grpo.commands import run_package

if __name__ == "__main__":
    sys.exit(run_package("export", __package__))
