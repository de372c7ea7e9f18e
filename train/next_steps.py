"""What a run says at its end: where it lies, and the next commands."""

from pathlib import Path

from sqale_grpo.settings.files import CONFIGS
from sqale_grpo.settings.keys import Config
from sqale_grpo.settings.run_folder import BEST, latest_checkpoint, run_folder
from sqale_grpo.settings.seal import is_whole

USUAL = "sqale"  # evaluated where the corpus that was trained on has no benchmark


def next_lines(config: Config) -> list[str]:
    """A line on what is there, and one for each next command."""
    folder = run_folder(config)
    name = config.corpus.name if (CONFIGS / "eval" / f"{config.corpus.name}.yaml").is_file() else USUAL
    best = [f"best held out: {folder / BEST}"] if is_whole(folder / BEST) else []
    return [
        f"the run is finished: {folder}, its newest checkpoint {latest_checkpoint(folder)}",
        *best,
        f"measure it:   sqale-grpo evaluate configs/eval/{name}.yaml model={folder}",
        f"look at it:   sqale-grpo report {folder}",
        f"hand it on:   sqale-grpo export {folder} --out {Path('exports') / config.name}",
    ]


def is_finished(config: Config, checkpoint: Path | None) -> bool:
    """Whether the checkpoint is that of the run's last update."""
    return checkpoint is not None and checkpoint.name == f"checkpoint-{config.train.updates}"
