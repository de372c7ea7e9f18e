"""Which folder or Hub name a policy's path means. Imports no torch."""

import difflib
from pathlib import Path

from sqale_grpo.rollout.demo_policy import demo_policy_folder
from sqale_grpo.settings.check import ConfigError
from sqale_grpo.settings.run_folder import CONFIG, latest_checkpoint
from sqale_grpo.settings.seal import check_weights, is_whole

DEMO = "demo"  # as a policy's path: the one that the demo starts from
MODEL_FILE = "config.json"
OURS = ("runs", "exports", "output")  # where runs and exports lie, whether there is one yet or not
SHOWN = 5  # folders that a message names
ADAPTER_FILE = "adapter_config.json"  # PEFT's: the folder holds LoRA adapters over a base named in it


def resolve_policy(path: str | Path) -> Path | str:
    """The folder or the Hub name of the policy that ``path`` means.

    ``demo`` is the policy that the package ships. A run's folder stands for its newest complete checkpoint; a folder
    that holds a model or adapters for itself; all else is a name on the Hub. ConfigError for a folder that holds no
    policy and for a checkpoint that was cut off or is damaged.
    """
    if str(path) == DEMO:
        return demo_policy_folder()
    folder = Path(path).expanduser()
    if not folder.is_dir():
        if _written_as_folder(str(path)):
            raise ConfigError(
                f"there is no folder {path}; {_beside(folder)}name a run's folder, a checkpoint, or a model on the Hub "
                "such as Qwen/Qwen3.5-2B"
            )
        return str(path)
    if (folder / CONFIG).is_file() and not _holds_policy(folder):
        checkpoint = latest_checkpoint(folder)
        if checkpoint is None:
            raise ConfigError(f"the run in {folder} has no complete checkpoint yet; name one that has")
        check_weights(checkpoint)
        return checkpoint
    if not _holds_policy(folder):
        raise ConfigError(f"{folder} is no run's folder and holds neither {MODEL_FILE} nor {ADAPTER_FILE}; name one")
    ours = folder.name.startswith("checkpoint-") and (folder.parent / CONFIG).is_file()
    if ours and not is_whole(folder):
        raise ConfigError(f"{folder} was cut off while it was written; name the run's folder {folder.parent} instead")
    if ours:
        check_weights(folder)
    return folder


def is_adapter(path: str | Path) -> bool:
    """Whether the folder holds adapters instead of a whole model."""
    return (Path(path) / ADAPTER_FILE).is_file()


def _holds_policy(folder: Path) -> bool:
    return (folder / MODEL_FILE).is_file() or (folder / ADAPTER_FILE).is_file()


def _written_as_folder(path: str) -> bool:
    """Whether a path means a folder of this machine: no name is sent to the Hub whose first part is a folder here."""
    first, slash, _ = path.partition("/")
    local = bool(slash) and (first in OURS or Path(first).is_dir())
    return path.startswith((".", "/", "~")) or path.count("/") > 1 or local


def _beside(folder: Path) -> str:
    """The folders that lie where this one was looked for, the nearest names first."""
    try:
        names = sorted(path.name for path in folder.parent.iterdir() if path.is_dir() and not path.name.startswith("."))
    except OSError:
        return ""
    near = difflib.get_close_matches(folder.name, names, SHOWN, cutoff=0.3)
    shown = ", ".join(dict.fromkeys([*near, *names][:SHOWN]))
    return f"{folder.parent}/ has {shown}; " if names else f"{folder.parent}/ is empty; "
