"""``python -m train.export``: the export's command line, as ``scripts/export.py``."""

import sys

from train.export.command import main

if __name__ == "__main__":
    sys.exit(main())
