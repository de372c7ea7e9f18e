"""An evaluation's folder, looked at before anything is loaded: whose it is, and whether it is finished."""

from pathlib import Path

from sqale_grpo.env.files import LOCK, PARTIAL
from sqale_grpo.evaluate.records import CONFIG, SUMMARY, record_files
from sqale_grpo.settings.check import ConfigError, check_resume
from sqale_grpo.settings.evaluation import FREE_ON_RESTART, EvaluationConfig, load_evaluation
from sqale_grpo.settings.load import flatten


def check_folder(config: EvaluationConfig, folder: Path) -> None:
    """ConfigError where ``folder`` holds something else than this evaluation, or one of which nothing was played."""
    if (folder / CONFIG).exists():
        try:
            saved = load_evaluation([folder / CONFIG])
        except ConfigError as error:
            raise ConfigError(
                f"{folder} holds no evaluation of this version ({error}); set another name=..."
            ) from error
        if record_files(folder) or (folder / SUMMARY).exists():
            check_resume(flatten(saved), flatten(config), str(folder), FREE_ON_RESTART)
    elif folder.exists() and any(path.name != LOCK and path.suffix != PARTIAL for path in folder.iterdir()):
        raise ConfigError(f"{folder} is not empty and holds no evaluation; set another name=... or output=...")


def finished(folder: str | Path) -> bool:
    """Whether the evaluation in ``folder`` has all of its episodes and its summary."""
    return (Path(folder) / SUMMARY).exists()
