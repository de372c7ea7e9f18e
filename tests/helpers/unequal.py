"""``sqale-grpo train WORDS`` where the last of several processes has another seed than the others."""

import sys

from sqale_grpo.commands import main
from sqale_grpo.settings.shape import launched_processes, process_index

if __name__ == "__main__":
    last = process_index() == launched_processes() - 1
    sys.exit(main(["train", *sys.argv[1:], *(["seed=99"] if last else [])]))
