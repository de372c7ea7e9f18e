"""The protocol: which calls a completion holds, and which SQL a final answer means.

A turn is a ``<think>`` block, then bare JSON objects ``{"tool": "<name>", "args": {...}}`` (card). What stands around
them does not matter: prose, code fences, commas.
"""

import json
import re
from dataclasses import dataclass
from typing import Any, Literal

ErrorKind = Literal["no_call", "bad_json", "unknown_tool", "bad_args"]

# The arguments of every tool: name, type, and whether it must be given (card and project page).
SIGNATURES: dict[str, dict[str, tuple[type, bool]]] = {
    "list_tables": {"after": (str, False)},
    "describe_table": {"table_name": (str, True)},
    "foreign_keys": {"table_name": (str, False)},
    "join_path": {"table_a": (str, True), "table_b": (str, True)},
    "sample_rows": {"table_name": (str, True), "limit": (int, False)},
    "distinct_values": {"table_name": (str, True), "column_name": (str, True), "limit": (int, False)},
    "run_query": {"sql": (str, True)},
    "submit_sql": {"sql": (str, True)},
}

# What other formats of calls name the arguments.
ARGS_WORDS = frozenset({"arguments", "arg", "parameters", "params", "input", "inputs", "kwargs"})
_TYPE_WORDS = {str: "text", int: "a whole number"}
_STRING_OR_BRACE = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"?|[{}]', re.DOTALL)
_NEXT_CALL = re.compile(r'\{\s*"tool"\s*:')
# Any quote, escaped or not: the object is broken, so its writer's idea of a quote may be broken too.
# Atomic: two runs of blanks beside each other could be divided in many ways.
_TOOL_KEY = re.compile(r"""tool(?>\s*)(?>\\*)["'`‘’“”]?(?>\s*):""")

_QUOTED_OR_SPACE = re.compile(
    r"""(?P<kept>'[^']*(?:'|\Z)|"[^"]*(?:"|\Z)|`[^`]*(?:`|\Z)|\[[^\]]*(?:\]|\Z)|--[^\n]*\n?|/\*.*?(?:\*/|\Z))|\s+""",
    re.DOTALL,
)
_FENCE = re.compile(r"```[ \t]*(?:sql(?:ite)?\b|\w+(?=[ \t]*\n))?(.*?)(?:```|\Z)", re.DOTALL | re.IGNORECASE)
_LINE_FENCE = re.compile(f"^[ \\t]*{_FENCE.pattern}", _FENCE.flags | re.MULTILINE)
_SQL_START = re.compile(r"\s*(?:select|with|values|explain|\(|--|/\*)", re.IGNORECASE)
# "Here is the final query:", "**SQL:**", or a lone "sql" above the statement.
_SQL_LABEL = re.compile(
    r"[^\n:;'\"]{0,60}\b(?:sql|sqlite|query|answer)\b[^\n:;'\"]{0,40}:\**|\s*sql(?:ite)?\s*\n", re.IGNORECASE
)


@dataclass(frozen=True)
class ToolCall:
    """A call that can be run: the tool exists and its arguments are the right ones."""

    tool: str
    args: dict[str, Any]


@dataclass(frozen=True)
class CallError:
    """What should have been a call. ``message`` is one line for the policy: the mistake and what would be right."""

    kind: ErrorKind
    message: str


def after_thinking(completion_text: str) -> str:
    """The text after the last ``</think>``; all of it where there is none (our assumption)."""
    return completion_text.rpartition("</think>")[2]


def parse_turn(completion_text: str) -> list[ToolCall | CallError]:
    """Calls and errors of a completion in order; never empty: without any object it is one ``no_call`` error.

    Each outermost JSON object with a key ``tool`` is one entry. JSON is read strictly, the last of duplicate keys wins.
    An outermost ``{...}`` that cannot be read and seems to have the key ``tool`` is one ``bad_json`` error; where its
    braces never balance, it ends before the next ``{"tool":``.
    """
    text = after_thinking(completion_text)
    closings: dict[int, int | None] = {}
    entries: list[ToolCall | CallError] = []
    at = text.find("{")
    while at >= 0:
        try:
            found, end = _DECODER.raw_decode(text, at)
            if "tool" in found:
                entries.append(_check_call(found))
        # ValueError: also an integer of too many digits; RecursionError: objects nested too deeply.
        except (ValueError, RecursionError) as error:
            end = _broken_end(text, at, closings)
            if _TOOL_KEY.search(text, at, end):
                entries.append(_bad_json(error))
        at = text.find("{", end)
    return entries or [_NO_CALL]


def final_sql(completion_text: str) -> str:
    """The SQL of a final answer, "" where there is none.

    A ``submit_sql`` object counts if there is one, the first of several. Otherwise it is the text after the thinking,
    taken out of its code fence (the last one), without a label such as "SQL:" before it and semicolons after it.
    """
    for entry in parse_turn(completion_text):
        if isinstance(entry, ToolCall) and entry.tool == "submit_sql":
            return _strip_end(entry.args["sql"])
    text = after_thinking(completion_text)
    # Inside a statement a fence can be part of a literal, unless it stands at the start of a line.
    fence = _LINE_FENCE if _SQL_START.match(text) else _FENCE
    fenced = [content for content in fence.findall(text) if content.strip()]
    text = (fenced[-1] if fenced else fence.sub("", text)).strip()
    if len(text) > 1 and text[0] == text[-1] == "`":
        text = text.strip("`")
    label = None if _SQL_START.match(text) else _SQL_LABEL.match(text)
    return _strip_end(text[label.end() :] if label else text)


def same_query_key(sql: str) -> str:
    """Equal for queries that differ in white space outside quotes and in trailing semicolons alone."""
    return _strip_end(_QUOTED_OR_SPACE.sub(lambda match: match["kept"] or " ", sql))


def _strip_end(sql: str) -> str:
    return sql.strip().rstrip("; \t\r\n")


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON value")


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)


def _broken_end(text: str, start: int, closings: dict[int, int | None]) -> int:
    """Where the unreadable object that opens at ``start`` ends. ``closings`` remembers what earlier scans matched."""
    if start not in closings:
        _match_braces(text, start, closings)
    closed = closings[start]
    if closed is not None:
        return closed
    following = _NEXT_CALL.search(text, start + 1)
    return following.start() if following else len(text)


def _match_braces(text: str, start: int, closings: dict[int, int | None]) -> None:
    """Note for every brace from ``start`` on where it closes, until ``start``'s own does; None: never."""
    opened: list[int] = []
    for match in _STRING_OR_BRACE.finditer(text, start):
        if match[0] == "{":
            opened.append(match.start())
        elif match[0] == "}":
            closings[opened.pop()] = match.end()
        if not opened:
            return
    closings.update(dict.fromkeys(opened))


def _check_call(found: dict[str, Any]) -> ToolCall | CallError:
    tool = found["tool"]
    if not isinstance(tool, str) or tool not in SIGNATURES:
        shown = tool if isinstance(tool, str) else json.dumps(tool)
        return CallError("unknown_tool", f"unknown tool {_short(shown)}; the tools are {', '.join(SIGNATURES)}")
    args = found.get("args")
    if args is None:
        args = {}
    mistake = _misplaced(SIGNATURES[tool], found) or _args_mistake(SIGNATURES[tool], args)
    if mistake:
        return CallError("bad_args", f"{tool}: {mistake}; {_usage(tool)}")
    return ToolCall(tool, args)


def _misplaced(signature: dict[str, tuple[type, bool]], found: dict[str, Any]) -> str | None:
    """Arguments that stand where nobody reads them: under another word for args, or beside it."""
    for name in found:
        if name in ARGS_WORDS:
            return f"args is called {_short(name)}; its name is args"
        if name in signature:
            return f"argument {name} stands beside args"
    return None


def _args_mistake(signature: dict[str, tuple[type, bool]], args: Any) -> str | None:
    if not isinstance(args, dict):
        return "args is no object"
    for name in args:
        if name not in signature:
            return f"unknown argument {_short(name)}"
    for name, (kind, required) in signature.items():
        if name not in args:
            if required:
                return f"argument {name} is missing"
        # type() and not isinstance(): true is no number.
        elif type(args[name]) is not kind:
            return f"argument {name} must be {_TYPE_WORDS[kind]}"
    return None


def _usage(tool: str) -> str:
    signature = SIGNATURES[tool]
    if not signature:
        return "it takes no arguments"
    names = [name if required else f"{name} (optional)" for name, (_, required) in signature.items()]
    return f"it takes {', '.join(names)}, inside args"


def _short(text: str) -> str:
    line = json.dumps(text, ensure_ascii=False)
    return line if len(line) <= 60 else line[:59] + "…"


def _bad_json(error: Exception) -> CallError:
    if isinstance(error, json.JSONDecodeError):
        reason = error.msg[:1].lower() + error.msg[1:]
    else:
        reason = "nested too deeply" if isinstance(error, RecursionError) else "a number that JSON does not allow"
    return CallError("bad_json", f"the tool call is not valid JSON ({reason}); nothing of it was run")


_NO_CALL = CallError(
    "no_call", 'no tool call found; reply with one JSON object {"tool": "<name>", "args": {...}} after thinking'
)
