"""``python -m sqale_grpo COMMAND ...``: the same as ``sqale-grpo COMMAND ...``."""

import sys

from sqale_grpo.commands import main

if __name__ == "__main__":
    sys.exit(main())
