"""``sqale-grpo evaluate replay RUN --episode ID``: one recorded episode, turn by turn.

RUN is an evaluation's folder or a training run's. ID is ``question_id``, with ``#candidate`` and, in a training run,
``@update`` where there are several: ``q7#3@120``. What policy and database wrote is shown as characters, never obeyed:
control characters, terminal escapes and invisible characters are written out, and nothing is read as markup.
"""

import argparse
import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from rich.console import Console
from rich.rule import Rule
from rich.text import Text

from sqale_grpo.env.text import harmless, one_line
from sqale_grpo.settings.check import ConfigError
from sqale_grpo.settings.run_folder import EPISODES

HIDDEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}  # Unicode categories that a terminal may obey or not show
NEAREST = 3
LISTED, QUESTION_CHARS = 200, 80
STYLES = {"equivalent": "green", "executable": "yellow", "parsable": "red", "invalid": "red"}
FACTS = ("recall", "rounds", "calls", "prompt_tokens", "completion_tokens", "written_tokens", "advantage", "official")


@dataclass(frozen=True)
class EpisodeId:
    """Which episode: ``update`` is 0 in an evaluation."""

    question_id: str
    candidate: int
    update: int

    def text(self, updates: bool) -> str:
        """As ``--episode`` takes it."""
        return f"{self.question_id}#{self.candidate}" + (f"@{self.update}" if updates else "")


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; prints one episode."""
    parser = argparse.ArgumentParser(prog="sqale-grpo evaluate replay", description=__doc__.partition("\n")[0])
    parser.add_argument("run", type=Path, metavar="RUN", help="folder of an evaluation or of a training run")
    parser.add_argument(
        "--episode", metavar="ID", help="question_id, question_id#candidate[@update]; without it: which there are"
    )
    options = parser.parse_args(arguments)
    if options.episode is None:
        list_episodes(Console(), options.run)
    else:
        show_episode(Console(), find_episode(options.run, options.episode))
    return 0


def list_episodes(console: Console, run: Path) -> None:
    """A line an episode of the newest files: id, tier and question. ConfigError where the folder has none."""
    files = episode_files(run)
    updates = len(files) > 1 and any(key.update for key in _keys(files[-1]))
    shown = 0
    for path in reversed(files):
        rows = pq.read_table(path, columns=["tier", "question"]).to_pylist()
        for key, row in zip(_keys(path), rows, strict=True):
            if shown == LISTED:
                console.print(f"... and older ones; --episode ID shows any of {run}", markup=False, soft_wrap=True)
                return
            question = one_line(row["question"], QUESTION_CHARS)
            console.print(Text(harmless(f"{key.text(updates):24} {row['tier']:11} {question}")), soft_wrap=True)
            shown += 1


def episode_files(run: Path) -> list[Path]:
    """The files of a folder's episodes, oldest first. ConfigError where there are none."""
    files = sorted((run / EPISODES).glob("*.parquet"))
    if not files:
        raise ConfigError(f"no episodes in {run}: give the folder of an evaluation or of a training run")
    return files


def find_episode(run: Path, wanted: str) -> dict[str, Any]:
    """The row of an episode. ConfigError where the folder has none, or none of that name: it tells the nearest."""
    files = episode_files(run)
    keys = {key: path for path in files for key in _keys(path)}
    updates = len({key.update for key in keys}) > 1
    matching = [key for key in keys if matches(key, wanted)]
    if not matching:
        names = dict.fromkeys(form for key in keys for form in (key.text(updates), key.question_id))
        close = get_close_matches(wanted, list(names), NEAREST, cutoff=0.0)
        raise ConfigError(f"no episode {wanted} in {run}; the nearest are {', '.join(close)}")
    key = max(matching, key=lambda key: (key.update, -key.candidate))
    others = sorted((other.text(updates) for other in matching if other != key), key=lambda name: (len(name), name))
    at = list(_keys(keys[key])).index(key)
    row = pq.read_table(keys[key]).slice(at, 1).to_pylist()[0]
    return {**row, "key": key.text(updates), "others": others}


def _keys(path: Path) -> list[EpisodeId]:
    columns = pq.read_table(path, columns=["question_id", "candidate", "update"]).to_pydict()
    return [
        EpisodeId(*parts) for parts in zip(columns["question_id"], columns["candidate"], _updates(columns), strict=True)
    ]


def _updates(columns: dict[str, list]) -> list[int]:
    return [update or 0 for update in columns["update"]]


def matches(key: EpisodeId, wanted: str) -> bool:
    """Whether ``wanted`` names the episode: its question alone, or with candidate, update or both."""
    if wanted == key.question_id:
        return True
    found = re.fullmatch(r"(?P<question>.*?)(?:#(?P<candidate>\d+))?(?:@(?P<update>\d+))?", wanted, re.DOTALL)
    assert found is not None
    return (
        found["question"] == key.question_id
        and found["candidate"] in (None, str(key.candidate))
        and found["update"] in (None, str(key.update))
    )


def show_episode(console: Console, row: dict[str, Any]) -> None:
    """Print an episode: the question, its turns, the answer and what it earned."""
    _rule(console, f"episode {row['key']}")
    _block(console, "question", row["question"], "bold")
    facts = {"corpus": row["corpus"], "database": row["db_id"], "difficulty": row["difficulty"] or "–"}
    facts |= {"tables": f"{len(row['tables'] or ())} ({', '.join(row['gold_tables'] or ())} in the gold query)"}
    _line(console, facts)
    for number, turn in enumerate(row["turns"] or (), 1):
        _rule(console, f"turn {number}")
        _block(console, "policy", turn["completion"])
        calls = [
            f"{call['tool'] or 'unreadable'}{' – ' + call['error'] if call['error'] else ''}" for call in turn["calls"]
        ]
        if calls:
            _block(console, "calls", ", ".join(calls), "dim")
        if turn["observation"] is not None:
            _block(console, "environment", turn["observation"], "cyan")
    _rule(console, f"ended by {row['ended_by']}")
    _block(console, "answer", row["sql"] if row["sql"] is not None else "(no answer)")
    _block(console, "gold", row["gold_sql"])
    reward = "no reward" if row["reward"] is None else f"reward {row['reward']:.4g}"
    _block(console, "tier", f"{row['tier']}, {reward}", STYLES.get(row["tier"], ""))
    if row.get("message") or row.get("error"):
        _block(console, "why", row.get("message") or row["error"])
    known = {name: row[name] for name in FACTS if row.get(name) is not None}
    _line(console, {name: f"{value:.4g}" if isinstance(value, float) else value for name, value in known.items()})
    if row["others"]:
        more = ", …" if len(row["others"]) > 8 else ""
        _block(console, "also", ", ".join(row["others"][:8]) + more, "dim")


def _rule(console: Console, title: str) -> None:
    console.print(Rule(Text(harmless(title).replace("\n", "\\n")), align="left"))


def _block(console: Console, label: str, text: str, style: str = "") -> None:
    shown = harmless(text)
    gap = "\n" if "\n" in shown else " "
    console.print(Text.assemble((f"{label}:{gap}", "bold"), Text(shown, style)), soft_wrap=True)


def _line(console: Console, facts: dict[str, Any]) -> None:
    shown = "  ".join(f"{name} {harmless(str(value))}" for name, value in facts.items())
    console.print(Text(shown, "dim"), soft_wrap=True)
