"""Play an episode by hand: type what the policy would write, see what it would see.

    sqale-grpo env shop.sqlite --question "How many orders are late?"

A turn ends with an empty line. A call may be typed as JSON, or short: ``list_tables``, ``sample_rows orders 3``,
``run_query SELECT 1``. Ctrl-D gives up.
"""

import argparse
import json
import sqlite3
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from sqale_grpo.env.episode import Episode, EpisodeLimits, Finished
from sqale_grpo.env.errors import UserError
from sqale_grpo.env.limits import Limits, SqlError
from sqale_grpo.env.prompts import load_prompts
from sqale_grpo.env.protocol import SIGNATURES
from sqale_grpo.env.sandbox import Sandbox, default_pool
from sqale_grpo.env.text import harmless, table_lines

SHOWN_ROWS = 20


def main(arguments: Sequence[str] | None = None) -> int:
    """Play one episode on standard input and output. Raises UserError where the episode cannot start."""
    parser = _options()
    options = parser.parse_args(arguments)
    if options.check:
        return _check()
    if options.database is None or options.question is None:
        parser.error("the following arguments are required: database, --question")
    with ExitStack() as stack:
        try:
            prompts = load_prompts(options.prompts)
            limits = EpisodeLimits(tool_turns=options.tool_turns)
            sandbox = stack.enter_context(Sandbox(options.database, Limits(seconds=options.seconds)))
            sandbox.schema  # noqa: B018 a file that is not a database is to fail here, not at the first call
        except ValueError as error:
            raise UserError(str(error)) from error
        _play(Episode(options.question, sandbox, limits, options.gated, options.evidence, prompts), sandbox)
    return 0


def _check() -> int:
    """Say what holds a query here: SQLite's release, and what the kernel forbids its process."""
    print(f"SQLite {sqlite3.sqlite_version}")
    for layer, state in default_pool().confinement().items():
        print(f"{layer}: {state}")
    return 0


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="sqale-grpo env", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("database", type=Path, nargs="?", help="SQLite file; it is opened read-only")
    parser.add_argument("--question", help="what is to be answered")
    parser.add_argument("--check", action="store_true", help="say what holds a query on this machine, and end")
    parser.add_argument("--evidence", default="", help="hint shown after the question")
    parser.add_argument("--gated", action="store_true", help="refuse submit_sql until the query has been run")
    parser.add_argument("--prompts", type=Path, help="JSON file of prompts (default: the project's own)")
    parser.add_argument("--tool-turns", type=int, default=6, help="turns with calls (default: 6)")
    parser.add_argument("--seconds", type=float, default=30.0, help="time limit of a query (default: 30)")
    return parser


def _play(episode: Episode, sandbox: Sandbox) -> None:
    for message in episode.prompt():
        _show(message["role"], message["content"])
    while episode.finished is None:
        completion = _read_turn()
        if completion is None:
            print("\nGiven up: the episode has no end.")
            return
        answer = episode.step(completion)
        if not isinstance(answer, Finished):
            _show("user", answer.text)
    _show_end(episode.finished, sandbox)


def _show(role: str, text: str) -> None:
    print(f"--- {role}\n{harmless(text)}\n")


def _show_end(finished: Finished, sandbox: Sandbox) -> None:
    print(f"--- ended by {finished.ended_by}\n{harmless(finished.sql or '(no answer)')}\n")
    if not finished.sql:
        return
    try:
        result = sandbox.execute(finished.sql, SHOWN_ROWS)
    except SqlError as error:
        print(f"It does not run: {error.message}")
        return
    print(harmless("\n".join(table_lines(result.columns, result.rows, EpisodeLimits().cell_chars))))
    if result.truncated:
        print(f"... (first {SHOWN_ROWS} rows)")


def _read_turn() -> str | None:
    """The lines up to an empty one, short calls written out; None at the end of the input."""
    print("--- you (an empty line sends)")
    lines: list[str] = []
    for line in sys.stdin:
        if not line.strip() and lines:
            break
        if line.strip():
            lines.append(_written_out(line.rstrip("\r\n")))
    return "\n".join(lines) if lines else None


def _written_out(line: str) -> str:
    """``sample_rows orders 3`` as the JSON call that it stands for; any other line as it is.

    The last text argument takes the rest of the line, so that SQL and names with blanks need no quotes.
    """
    tool, _, rest = line.strip().partition(" ")
    signature = SIGNATURES.get(tool)
    if signature is None:
        return line
    texts = [name for name, (kind, _) in signature.items() if kind is str]
    before, _, last = rest.strip().rpartition(" ")
    limit = int(last) if "limit" in signature and before and last.isdecimal() else None
    words = (rest if limit is None else before).split(maxsplit=max(len(texts) - 1, 0))
    args: dict[str, str | int] = dict(zip(texts, words, strict=False))
    if limit is not None:
        args["limit"] = limit
    call = json.dumps({"tool": tool, "args": args}, ensure_ascii=False)
    print(f"    {harmless(call)}")
    return call
