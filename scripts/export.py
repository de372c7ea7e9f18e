"""Export a trained checkpoint: weights, tokenizer, agent, prompts, model card, licence; pushed to the Hub if asked.

    python scripts/export.py runs/NAME --out exports/NAME [--push OWNER/NAME [--dry-run]]

docs/use_a_checkpoint.md says what is in the folder.
"""

import sys

from train.export.command import main

if __name__ == "__main__":
    sys.exit(main())
