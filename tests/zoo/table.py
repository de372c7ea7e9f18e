"""Print what this project, and plain ``sqlite3``, make of each file of the zoo, as a table in Markdown.

    python -m tests.zoo.table

Plain is ``sqlite3.connect(path)``, as evaluators of text-to-SQL open a database, and the same with ``immutable=1``, as
those do that must not write. Each reads a zoo of its own, since the first may write.
"""

import sqlite3
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from sqale_grpo.env.limits import SqlError
from sqale_grpo.env.sandbox import Sandbox
from tests.zoo.make import Animal, Rows, make_zoo

HEAD = ("file", "what is special", "right", "this project", "`sqlite3.connect(path)`", "with `immutable=1`")
SHOWN = 60  # characters of a value or an error

Reader = Callable[[Path, Animal], Rows]


class Refusal(Exception):
    """No rows, and why."""


def ours(path: Path, animal: Animal) -> Rows:
    """Through the sandbox, as a policy or the agent would."""
    try:
        with Sandbox(path) as sandbox:
            if sandbox.schema.columns(animal.table) != animal.columns and animal.columns:
                raise Refusal("wrong columns")
            return sandbox.execute(animal.query).rows
    except (ValueError, SqlError) as error:
        raise Refusal(str(error).replace(f"{path.parent}/", "")) from error


def plain(path: Path, animal: Animal) -> Rows:
    """As most programs do."""
    return _rows(sqlite3.connect(path), animal)


def immutable(path: Path, animal: Animal) -> Rows:
    """Without locks and logs."""
    return _rows(sqlite3.connect(f"file:{quote(str(path))}?mode=ro&immutable=1", uri=True), animal)


def _rows(connection: sqlite3.Connection, animal: Animal) -> Rows:
    with closing(connection):
        try:
            return connection.execute(animal.query).fetchall()
        except sqlite3.Error as error:
            raise Refusal(str(error)) from error


def outcome(read: Reader, folder: Path, animal: Animal) -> str:
    """One word where it is right, else what came instead; and whether files were changed by it."""
    before = state(folder)
    try:
        rows = read(folder / animal.file, animal)
    except Refusal as refusal:
        said = "refused" if animal.may_refuse else f"error: {shortened(str(refusal))}"
    else:
        first = ", ".join(map(shown, rows[0])) if rows else "no rows"
        said = "right" if rows == animal.rows else f"**wrong: {first}**"
    return said if state(folder) == before else f"{said}, **changes files**"


def state(folder: Path) -> dict[str, tuple[int, int]]:
    """Size and time of what lies in the folder. The shared memory of a log says nothing."""
    files = (path for path in folder.rglob("*") if path.is_file() and not path.name.endswith("-shm"))
    return {path.name: (path.stat().st_size, path.stat().st_mtime_ns) for path in files}


def table() -> str:
    """The whole table."""
    lines = [list(HEAD), ["---"] * len(HEAD)]
    with tempfile.TemporaryDirectory(prefix="zoo-") as name:
        folders = {read: Path(name) / read.__name__ for read in (ours, plain, immutable)}
        for animal in [make_zoo(folder) for folder in folders.values()][0]:
            right = ", ".join(shown(value) for row in animal.rows for value in row)
            found = [outcome(read, folder, animal) for read, folder in folders.items()]
            lines.append([f"`{animal.file}`", animal.about, right, *found])
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def shown(value: object) -> str:
    """A value as code; what is not text in plain form."""
    text = repr(value) if isinstance(value, bytes) else ascii(value) if not str(value).isprintable() else str(value)
    return f"`{shortened(text)}`"


def shortened(text: str) -> str:
    """On one line of the table."""
    text = " ".join(text.split()).replace("|", "\\|")
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"


def main(arguments: Sequence[str]) -> int:
    """Print the table."""
    print(f"SQLite {sqlite3.sqlite_version}, Python {sys.version.split()[0]}\n\n{table()}", end="")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
