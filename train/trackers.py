"""What trackers (W&B, trackio) get beyond TRL's numbers: one run across resumes, the configuration, whole episodes."""

import os
import secrets
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from transformers import TrainerCallback
from transformers.integrations import get_reporting_integration_callbacks

from sqale_grpo.env.chance import rng
from sqale_grpo.env.files import write_whole
from sqale_grpo.rollout.record import SCHEMA
from sqale_grpo.settings.keys import Config
from sqale_grpo.settings.load import flatten
from sqale_grpo.settings.run_folder import EPISODES

RUN_ID = "wandb_run_id"  # file in the run's folder
SHOWN = 8  # episodes of a table
COLUMNS = (
    "update",
    "question",
    "gold SQL",
    "answer",
    "tier",
    "reward",
    "advantage",
    "ended by",
    "turns",
    "gate",
    "tables",
    "bucket",
    "episode",
)


def continue_run(config: Config, folder: Path) -> None:
    """Let W&B file a resumed run under the id it had before, and its files in the run's folder.

    A W&B agent gives its run an id of its own (``WANDB_RUN_ID``); that one is kept too. trackio goes by the name.
    """
    if "wandb" not in config.train.log_to:
        return
    file = folder / RUN_ID
    if not file.exists():
        write_whole(file, os.environ.get("WANDB_RUN_ID") or secrets.token_hex(4))
    os.environ["WANDB_RUN_ID"] = file.read_text(encoding="utf-8")
    os.environ["WANDB_RESUME"] = "allow"
    os.environ.setdefault("WANDB_DIR", str(folder))


def tracker_callbacks(names: list[str], sent: int) -> list[TrainerCallback]:
    """transformers' callbacks of the trackers ``names``, which leave out the first ``sent`` updates.

    A run goes on from its last checkpoint and plays the updates after it again; a tracker cannot take back what it has,
    so each of them would stand there twice.
    """

    def once(kind: type[TrainerCallback]) -> type[TrainerCallback]:
        class Once(kind):
            def on_log(self, args: Any, state: Any, control: Any, **more: Any) -> None:
                again = _is_update(more["logs"]) or _is_held_out(more["logs"])
                if not again or state.global_step > sent or not sent:
                    super().on_log(args, state, control, **more)

        return Once

    return [once(kind)() for kind in get_reporting_integration_callbacks(names)]


def _is_update(logs: dict[str, float] | None) -> bool:
    """Whether these are an update's metrics: TRL's summary at the end of a run has no rates and no episodes."""
    return logs is not None and "equivalent_rate" in logs


def _is_held_out(logs: dict[str, float] | None) -> bool:
    """Whether these are a play of the held-out questions, which a resumed run plays again after its checkpoint.

    It comes before the update's own metrics, so what was not sent of the two is the latter.
    """
    return logs is not None and "eval_n" in logs


class EpisodeTables(TrainerCallback):
    """Every ``train.log_episodes_updates`` updates a table of whole episodes, and at the start the configuration.

    It reads the run's own record, after it was written, and leaves out the first ``sent`` updates. The trackers' own
    callbacks come first and start them.
    """

    def __init__(self, config: Config, folder: Path, sent: int) -> None:
        self.config, self.folder, self.sent = config, folder, sent
        self.trackers = config.train.log_to

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Add every key of the configuration under ``recipe/KEY``: TRL's own arguments stand there already."""
        if state.is_world_process_zero:
            for name in self.trackers:
                keys = {f"recipe/{key}": value for key, value in flatten(self.config).items()}
                import_module(name).config.update(keys, allow_val_change=True)

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float] | None = None, **_: Any) -> None:
        """After an update's metrics."""
        every = self.config.train.log_episodes_updates
        update = state.global_step - 1
        if not state.is_world_process_zero or not _is_update(logs) or not every or update % every or update < self.sent:
            return
        records = pq.read_table(self.folder / EPISODES / f"{update:06d}.parquet", schema=SCHEMA).to_pylist()
        rows = episode_rows(records, self.config.seed, update)
        for name in self.trackers:
            tracker = import_module(name)
            table = tracker.Table(columns=list(COLUMNS), data=rows)
            tracker.log({"episodes": table, "train/global_step": state.global_step})


def episode_rows(records: list[dict[str, Any]], seed: int, update: int) -> list[list[Any]]:
    """Up to ``SHOWN`` of an update's episodes as rows of ``COLUMNS``: tiers in turn, so that a rare one is among them.

    Which of a tier is chance, a function of (seed, update) alone.
    """
    shuffled = rng("episode table", seed, update).sample(records, len(records))
    seen: dict[str, int] = {}
    ranked = []
    for record in shuffled:
        ranked.append((seen.get(record["tier"], 0), record))
        seen[record["tier"]] = seen.get(record["tier"], 0) + 1
    chosen = sorted(ranked, key=lambda pair: pair[0])[:SHOWN]
    return [
        [
            update,
            record["question"],
            record["gold_sql"],
            record["sql"] or "",
            record["tier"] + (f": {record['error']}" if record["error"] else ""),
            record["reward"],
            record["advantage"],
            record["ended_by"],
            len(record["turns"]),
            "closed" if record["gated"] else "open",
            len(record["tables"]),
            record["bucket"],
            transcript(record["turns"]),
        ]
        for _, record in chosen
    ]


def transcript(turns: list[dict[str, Any]]) -> str:
    """An episode as a person reads it: what the policy wrote and what it was shown, turn by turn."""
    parts = []
    for number, turn in enumerate(turns, start=1):
        parts.append(f"[turn {number}] {turn['completion'].strip()}")
        if turn["observation"]:
            parts.append(turn["observation"].strip())
    return "\n\n".join(parts)
