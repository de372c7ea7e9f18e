"""Whether an export is what it says: its own agent, run alone, loads it and plays an episode."""

import json
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from sqale_grpo.agent.bundle import NAME
from sqale_grpo.settings.check import ConfigError

SECONDS = 3_600.0  # a model of billions of parameters on a CPU


def verify(folder: Path, report: Callable[[str], None]) -> None:
    """Play one short episode with the folder's ``sqale_agent.py`` and model. ConfigError with what it said, if not."""
    with tempfile.TemporaryDirectory(prefix="sqale-verify-") as name:
        database = Path(name) / "shop.sqlite"
        with closing(sqlite3.connect(database)) as connection:
            connection.executescript("CREATE TABLE shops (id INTEGER PRIMARY KEY, city TEXT);")
            connection.executescript("INSERT INTO shops VALUES (1, 'oslo'), (2, 'rome');")
        agent = [sys.executable, "-I", str((folder / NAME).resolve()), "--model", str(folder.resolve())]
        asked = ["--db", str(database), "--question", "How many shops are there?", "--json"]
        short = ["--backend", "transformers", "--max-turn-tokens", "32", "--tool-turns", "1"]
        try:
            done = subprocess.run([*agent, *asked, *short], cwd=name, capture_output=True, text=True, timeout=SECONDS)
        except subprocess.TimeoutExpired as error:
            raise ConfigError(f"{folder} was written, but its agent did not answer in {SECONDS:,.0f} s") from error
    if done.returncode:
        said = (done.stderr.strip() or "nothing").splitlines()[-1]
        raise ConfigError(f"{folder} was written, but its agent does not run: {said}")
    result = json.loads(done.stdout)
    report(f"verified: loaded, and one episode played ({result['turns']} turns, ended by {result['ended_by']})")
