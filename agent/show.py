"""How an answer looks: on a terminal, which nothing that a database or a policy says moves; as JSON; as CSV."""

import csv
import io
import json
import math
import sys
from typing import Any, TextIO

from sqale_grpo.env.text import cell, harmless, harmless_json, table_lines

CELL_CHARS = 60
STYLES = {"head": "1", "think": "2", "call": "36", "bad": "31", "good": "32", "plain": "0"}


class Printer:
    """Writes an episode to a stream; ``colour`` None: where the stream is a terminal and NO_COLOR is not set."""

    def __init__(self, stream: TextIO, colour: bool) -> None:
        self.stream = stream
        self.colour = colour

    def line(self, label: str, text: str, style: str = "plain") -> None:
        """A label and a text, whose further lines stand under its first."""
        lines = harmless(text).split("\n")
        for number, part in enumerate(lines):
            left = f"{label if number == 0 else '':<9}"
            print(left + self.styled(part, style), file=self.stream, flush=number == len(lines) - 1)

    def styled(self, text: str, style: str) -> str:
        """In the style's colour, if colours are on."""
        return f"\x1b[{STYLES[style]}m{text}\x1b[0m" if self.colour and text and style != "plain" else text

    def question(self, text: str, evidence: str, database: str) -> None:
        """What was asked, of which file."""
        self.line("Question", text, "head")
        if evidence:
            self.line("Hint", evidence)
        self.line("Database", database)

    def turn(self, number: int, turn: dict[str, Any], candidate: int | None = None) -> None:
        """One turn: the reasoning, the calls with their results, and what stood around them."""
        print(file=self.stream)
        of = "" if candidate is None else f" of candidate {candidate + 1}"
        self.line(f"Turn {number}{of}", "", "head")
        thinking, rest = split_thinking(turn["completion"])
        if thinking:
            self.line("  think", thinking, "think")
        if not turn["calls"]:
            self.line("  answer", rest or "(nothing)", "call")
        for call in turn["calls"]:
            self.line("  call", call_text(call) if call["tool"] else rest or "(nothing)", "call")
            self.line("  result", call["result"] or "accepted", "bad" if call["error"] else "plain")

    def answer(self, result: dict[str, Any]) -> None:
        """The end of an episode, its SQL and the rows."""
        print(file=self.stream)
        turns, calls = result["turns"], result["calls"]
        self.line("Ended", f"by {result['ended_by']} after {turns} turns, {calls} calls, {result['seconds']:.1f} s")
        if result["candidates"] > 1:
            self.votes(result)
        if result["is_sure"] is False:
            return
        self.line("SQL", result["sql"] or "(no answer)", "good" if result["sql"] and not result["error"] else "bad")
        if result["error"]:
            self.line("Error", result["error"], "bad")
        elif result["sql"]:
            self.rows(result)

    def rows(self, result: dict[str, Any]) -> None:
        """The rows of an answer, or of a result that candidates gave."""
        self.line("Rows", "\n".join(aligned(result["columns"], result["rows"])))
        if result["truncated"]:
            self.line("", f"... (first {len(result['rows'])} rows; more exist)")

    def votes(self, result: dict[str, Any]) -> None:
        """How many of several candidates agree; where they are too few, the two most frequent results."""
        of, votes = result["candidates"], result["votes"]
        if not votes:
            self.line("Not sure", f"no answer of {of} candidates runs", "bad")
            return
        agree = f"{votes[0]['count']} of {of} candidates agree ({result['agreement']:.0%}"
        if result["is_sure"]:
            self.line("Sure", f"{agree}; {result['threshold']:.0%} must)", "good")
            return
        self.line("Not sure", f"{agree}; {result['threshold']:.0%} must); what they gave most often:", "bad")
        for vote in votes:
            print(file=self.stream)
            self.line(f"{vote['count']} of {of}", vote["sql"])
            self.rows(vote)
        if result["difference"]:
            print(file=self.stream)
            self.line("Differ", result["difference"])


def split_thinking(completion: str) -> tuple[str, str]:
    """The reasoning of a completion, whose opening ``<think>`` the prompt may hold, and what comes after it."""
    before, found, after = completion.rpartition("</think>")
    return (before.replace("<think>", "").strip(), after.strip()) if found else ("", completion.strip())


def call_text(call: dict[str, Any]) -> str:
    """A call as one would write it: ``sample_rows(orders, 3)``; SQL on lines of its own."""
    args = call["args"]
    if list(args) == ["sql"]:
        return f"{call['tool']}\n{args['sql']}"
    values = ", ".join(value if isinstance(value, str) else json.dumps(value) for value in args.values())
    return f"{call['tool']}({values})"


def aligned(columns: list[str], rows: list[tuple]) -> list[str]:
    """A result as a table whose columns stand under each other."""
    if not rows:
        return table_lines(columns, rows, CELL_CHARS)
    cells = [[harmless(cell(value, CELL_CHARS)) for value in row] for row in [columns, *rows]]
    widths = [max(len(row[place]) for row in cells) for place in range(len(columns))]
    lines = [" | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]
    return [lines[0], "-+-".join("-" * width for width in widths), *lines[1:]]


def to_json(result: dict[str, Any]) -> str:
    """One line; blobs as SQL literals, infinity and what moves a terminal written out. Token ids are left out."""
    shown = {name: value for name, value in result.items() if name not in ("prompt_ids", "completion_ids", "env_mask")}
    shown |= _plain_rows(result)
    if "votes" in shown:
        shown["votes"] = [{**vote, **_plain_rows(vote)} for vote in shown["votes"]]
    return harmless_json(json.dumps(shown, ensure_ascii=False))


def to_csv(result: dict[str, Any]) -> str:
    """The answer's rows under its columns; NULL is an empty cell, a blob its SQL literal."""
    out = io.StringIO()
    lines = csv.writer(out, lineterminator="\n")
    lines.writerow(result["columns"])
    lines.writerows(_plain_rows(result)["rows"])
    return out.getvalue()


def _plain_rows(result: dict[str, Any]) -> dict[str, Any]:
    return {"rows": [[_plain(value) for value in row] for row in result["rows"]]}


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return f"x'{value.hex().upper()}'"
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def use_utf8() -> None:
    """Write UTF-8 whatever the locale says: a name with an umlaut must not end the program."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
