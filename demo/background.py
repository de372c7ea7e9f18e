"""A process of the demo: its share of the evaluation before, of GRPO, and of the evaluation after.

As a program (``python -m sqale_grpo.demo.background CONFIG RANK COUNT PORT RESUME PARENT``) a partner of the main
process, started by ``demo.processes`` alone; what it prints goes to a file in the run's folder.
"""

import sys
import time
from pathlib import Path

from rich.console import Console

from sqale_grpo.demo.processes import join, wait_for_all
from sqale_grpo.env.program import die_with
from sqale_grpo.evaluate.runner import Share, run_evaluation
from sqale_grpo.rollout.policy_path import resolve_policy
from sqale_grpo.settings.keys import Config
from sqale_grpo.settings.load import load_config
from sqale_grpo.settings.of_run import run_evaluation_config
from sqale_grpo.settings.run_folder import latest_checkpoint, run_folder
from sqale_grpo.train.run import run, set_up_libraries


def play_experiment(
    config: Config, resume: bool, console: Console, rank: int = 0, count: int = 1
) -> tuple[Path, Path, dict[str, float]]:
    """Folders of the evaluations before and after, and seconds by stage; this process is ``rank`` of ``count``."""
    folder, seconds = run_folder(config), {}
    share = Share(rank, count, wait_for_all)

    def evaluated(name: str, model: str | Path) -> Path:
        started = time.monotonic()
        console.rule(name)
        asked = run_evaluation_config(config, name, model)
        with console.status(f"evaluation {name}"):  # moves while the model is loaded, too
            played = run_evaluation(asked, folder / "evaluations" / name, console, share=share)
        seconds[name] = time.monotonic() - started
        return played

    before = evaluated("before", resolve_policy(config.model.path))
    started = time.monotonic()
    console.rule("GRPO")
    with console.status("GRPO"):
        run(config, resume, console)
    seconds["train"] = time.monotonic() - started
    wait_for_all()  # the last checkpoint is whole
    trained = latest_checkpoint(folder)
    assert trained is not None, "a finished run has a checkpoint"
    return before, evaluated("after", trained), seconds


def main(words: list[str]) -> int:
    """A partner: join the main process and play this one's share."""
    config, (rank, count, port, resume, parent) = load_config([Path(words[0])]), map(int, words[1:])
    die_with(parent)()  # one that goes on alone would write into the run that is started next
    set_up_libraries(config)
    join(rank, count, port)
    with Path("/dev/null").open("w") as nowhere:
        play_experiment(config, bool(resume), Console(file=nowhere), rank, count)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
