"""The seven look-up tools: what each answers, as text for the policy.

What only concerns the schema is answered from the graph that was read when the database was opened; the other three
run a query in the sandbox. A wrong name gets a one-line error with the closest real ones.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path

from sqale_grpo.env.budget import Budget
from sqale_grpo.env.limits import Query, QueryResult, SqlError
from sqale_grpo.env.protocol import ToolCall
from sqale_grpo.env.sandbox import Sandbox
from sqale_grpo.env.schema import ForeignKey, SchemaGraph
from sqale_grpo.env.text import cut, fold_name, one_line, printable, quote_name, table_lines


@dataclass(frozen=True)
class EpisodeLimits:
    """Budget of an episode and sizes of tool results. Raises ValueError for a value below 1.

    Turns, error cap and preview rows are the project's published values, the other sizes our assumption.
    """

    tool_turns: int = 6  # turns with calls, before the final turn
    error_cap: int = 4  # failed run_query calls in a row after which the final turn comes
    preview_rows: int = 5  # rows of run_query, and the default limit of sample_rows and distinct_values
    sample_rows_cap: int = 20
    distinct_values_cap: int = 50
    cell_chars: int = 80  # longer cells and headings are cut
    result_chars: int = 4000  # longer results are cut
    list_chars: int = 12000  # list_tables shows so many characters of names at once
    turn_calls: int = 20  # calls of one turn that are run; a policy that repeats itself fits 56 into its tokens
    turn_steps: int = 1_000_000_000  # virtual-machine steps of all queries of a turn, 2.5 times those of one

    def __post_init__(self) -> None:
        for field in fields(self):
            if getattr(self, field.name) < 1:
                raise ValueError(f"episode limit {field.name} is {getattr(self, field.name)}: it must be at least 1")


@dataclass(frozen=True)
class ToolResult:
    """A tool's answer. ``error`` is None, ``bad_args``, ``bad_name`` or the kind of an SqlError.

    ``not_run``: what a turn may use was used up before it.

    ``opened``: tables that this call has shown something of beyond their name, as declared.
    """

    text: str
    error: str | None = None
    opened: frozenset[str] = frozenset()


NO_COLLATION = "no such collation sequence"


class MachineError(Exception):
    """The machine failed at a query, twice in a row: what the policy did is not to be judged by it."""


def check_machine(error: SqlError, database: Path) -> None:
    """Raises MachineError for an error that is not the query's doing."""
    if error.kind == "machine":
        raise MachineError(f"{error.message}, at a query on {database}")


class ToolError(Exception):
    """A call whose arguments fit the tool but not the database."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(kind, message)
        self.kind = kind
        self.message = message


_Answer = tuple[str, Iterable[str]]


@dataclass(frozen=True)
class _Asked:
    """A call that waits for a query, and what its rows say.

    ``without_collation``: the same where the column's collation is another program's.
    """

    query: Query
    answer: Callable[[QueryResult], _Answer]
    without_collation: Query | None = None


def run_tool(call: ToolCall, sandbox: Sandbox, limits: EpisodeLimits) -> ToolResult:
    """Answer one call of the seven tools. Never raises for anything that the policy wrote."""
    return run_tools([call], sandbox, limits)[0]


def run_tools(
    calls: Sequence[ToolCall], sandbox: Sandbox, limits: EpisodeLimits, budget: Budget | None = None
) -> list[ToolResult]:
    """Answer calls in order, as far as ``budget`` goes. Their queries make one trip to the sandbox together.

    Raises MachineError where the machine failed at one of them.
    """
    plans = [_plan(call, sandbox, limits) for call in calls]
    asked = [plan for plan in plans if isinstance(plan, _Asked)]
    found = iter(sandbox.ask([plan.query for plan in asked], budget) if asked else ())
    answers: list[_Answer | SqlError | ToolError] = []
    for plan in plans:
        if answers and _stopped(answers[-1]):
            answers.append(answers[-1])  # a turn is stopped in its middle: what needs no query is not answered either
            next(found, None) if isinstance(plan, _Asked) else None
        else:
            answers.append(_answered(plan, next(found), sandbox) if isinstance(plan, _Asked) else plan)
    return [_result(call, answer, limits) for call, answer in zip(calls, answers, strict=True)]


def _stopped(answer: "_Answer | SqlError | ToolError") -> bool:
    return isinstance(answer, SqlError) and answer.kind == "not_run"


def _plan(call: ToolCall, sandbox: Sandbox, limits: EpisodeLimits) -> "_Asked | _Answer | ToolError":
    try:
        return _TOOLS[call.tool](sandbox, limits, **call.args)
    except ToolError as error:
        return error


def _answered(plan: _Asked, found: QueryResult | SqlError, sandbox: Sandbox) -> _Answer | SqlError:
    if isinstance(found, SqlError) and plan.without_collation and found.message.startswith(NO_COLLATION):
        (found,) = sandbox.ask([plan.without_collation])
    if isinstance(found, SqlError):
        check_machine(found, sandbox.database)
        return found
    return plan.answer(found)


def _result(call: ToolCall, answer: _Answer | SqlError | ToolError, limits: EpisodeLimits) -> ToolResult:
    if isinstance(answer, SqlError | ToolError):
        return ToolResult(printable(f"Error: {one_line(answer.message, limits.result_chars)}"), answer.kind)
    text, opened = answer
    if call.tool != "list_tables":  # it cuts itself, at a name
        text = cut(text, limits.result_chars)
    return ToolResult(printable(text), None, frozenset(opened))


def error_text(message: str) -> str:
    """How a call that could not be run is answered."""
    return printable(f"Error: {message}")


def _list_tables(sandbox: Sandbox, limits: EpisodeLimits, after: str | None = None) -> _Answer:
    """Names in one line (our assumption), views in a second one if there are any.

    The card promises every table name, and names that are cut off could not be found in any other way. So where they
    are too many for one result, it says how to ask for those ``after`` the last one shown (our assumption).
    """
    schema = sandbox.schema
    names = [*schema.tables, *schema.views]
    start = 0 if after is None else names.index(_resolve(schema, after)) + 1
    shown = start
    room = limits.list_chars
    while shown < len(names) and (shown == start or room > len(names[shown])):
        room -= len(names[shown]) + 2
        shown += 1
    tables, views = names[start:shown], names[max(start, len(schema.tables)) : shown]
    tables = tables[: len(tables) - len(views)]
    lines = [", ".join(_listed(name, limits.list_chars) for name in tables)] if tables or not views else []
    if views:
        lines.append("Views: " + ", ".join(_listed(name, limits.list_chars) for name in views))
    if shown < len(names):
        more = json.dumps({"tool": "list_tables", "args": {"after": one_line(names[shown - 1], limits.list_chars)}})
        lines.append(f"... ({shown} of {len(names)} names shown; go on with {more})")
    return "\n".join(lines) or "(no tables)", ()


def _describe_table(sandbox: Sandbox, limits: EpisodeLimits, table_name: str) -> _Answer:
    schema = sandbox.schema
    relation = _resolve(schema, table_name)
    return schema.ddl(relation), _if_table(schema, relation)


def _foreign_keys(sandbox: Sandbox, limits: EpisodeLimits, table_name: str | None = None) -> _Answer:
    """All declared keys, or those that start or end at a table (our assumption): both say how to join it."""
    schema = sandbox.schema
    keys: Sequence[ForeignKey] = schema.foreign_keys
    if table_name is not None:
        relation = _resolve(schema, table_name)
        keys = [key for key in keys if relation in (key.child, key.parent)]
        keys.sort(key=lambda key: key.child != relation)
    lines = [f"{key.child}.{child} -> {key.parent}.{parent}" for key in keys for child, parent in key.pairs()]
    # Keys that overlap in a column share a line.
    return "\n".join(dict.fromkeys(lines)) or "(no declared foreign keys)", ()


def _join_path(sandbox: Sandbox, limits: EpisodeLimits, table_a: str, table_b: str) -> _Answer:
    schema = sandbox.schema
    a, b = _resolve(schema, table_a), _resolve(schema, table_b)
    path = [a] if a == b else schema.join_path(a, b)
    return " → ".join(path) if path else f"(no chain of declared foreign keys joins {a} and {b})", ()


def _sample_rows(sandbox: Sandbox, limits: EpisodeLimits, table_name: str, limit: int | None = None) -> _Asked:
    relation = _resolve(sandbox.schema, table_name)
    sql = f"SELECT * FROM {quote_name(relation)}"
    return _limited(limits, sql, limit, limits.sample_rows_cap, "rows", _if_table(sandbox.schema, relation))


def _distinct_values(
    sandbox: Sandbox, limits: EpisodeLimits, table_name: str, column_name: str, limit: int | None = None
) -> _Asked:
    relation = _resolve(sandbox.schema, table_name)
    column = _resolve_column(sandbox.schema, relation, column_name)
    name = quote_name(column)
    sql = f"SELECT DISTINCT {name} FROM {quote_name(relation)}"
    asked = _limited(limits, sql, limit, limits.distinct_values_cap, "values", _if_table(sandbox.schema, relation))
    plain = f"SELECT DISTINCT {name} COLLATE BINARY AS {name} FROM {quote_name(relation)} NOT INDEXED"
    return replace(asked, without_collation=asked.query._replace(sql=plain))


def _run_query(sandbox: Sandbox, limits: EpisodeLimits, sql: str) -> _Asked:
    def answer(result: QueryResult) -> _Answer:
        lines = table_lines(result.columns, result.rows, limits.cell_chars)
        if result.truncated:
            lines.append(f"... (showing first {limits.preview_rows} rows; more rows exist)")
        return "\n".join(lines), result.tables

    return _Asked(Query(sql, limits.preview_rows, True, limits.cell_chars, counts=True), answer)


_TOOLS: dict[str, Callable[..., _Answer | _Asked]] = {
    "list_tables": _list_tables,
    "describe_table": _describe_table,
    "foreign_keys": _foreign_keys,
    "join_path": _join_path,
    "sample_rows": _sample_rows,
    "distinct_values": _distinct_values,
    "run_query": _run_query,
}


def _limited(limits: EpisodeLimits, sql: str, limit: int | None, cap: int, noun: str, opened: Iterable[str]) -> _Asked:
    """Up to ``limit`` rows. A remainder is named where the policy cannot infer it from its own limit."""
    asked = limits.preview_rows if limit is None else limit
    if asked < 1:
        raise ToolError("bad_args", f"limit is {asked}; it must be between 1 and {cap}")
    shown = min(asked, cap)

    def answer(result: QueryResult) -> _Answer:
        lines = table_lines(result.columns, result.rows, limits.cell_chars)
        if result.truncated and asked > cap:
            lines.append(f"... (showing first {shown} {noun}; limit is at most {cap})")
        elif result.truncated and noun == "values":
            lines.append(f"... (showing first {shown} values; more values exist)")
        return "\n".join(lines), {*result.tables, *opened}

    return _Asked(Query(sql, shown, True, limits.cell_chars, stored=True), answer)


def _listed(name: str, size: int = 200) -> str:
    """Plain, unless the list would be ambiguous then; what is longer than ``size`` is cut."""
    name = name if len(name) <= size else name[:size] + "…"
    return quote_name(name) if any(sign in name for sign in ',"\n') or name != name.strip() or not name else name


_QUOTES = {'"': '"', "`": "`", "[": "]", "'": "'"}


def _unquote(name: str) -> str:
    """The name that SQLite would read here, if it is quoted in one of its four ways."""
    last = _QUOTES.get(name[:1])
    if last is None or len(name) < 2 or name[-1] != last:
        return name
    return name[1:-1] if last == "]" else name[1:-1].replace(last * 2, last)


def _if_table(schema: SchemaGraph, relation: str) -> tuple[str, ...]:
    table = schema.find(relation)
    return () if table is None else (table,)


def _resolve(schema: SchemaGraph, name: str) -> str:
    """The declared name of a table or view. Raises ToolError with the closest names there are."""
    for spelling in (name, _unquote(name), name.strip()):
        for found in (schema.find(spelling), schema.find_view(spelling)):
            if found is not None:  # a table may be called ""
                return found
    hint = _closest(name, (*schema.tables, *schema.views))
    raise ToolError("bad_name", f"no such table: {_shown(name)}; " + (hint or "list_tables gives the names"))


def _resolve_column(schema: SchemaGraph, relation: str, name: str) -> str:
    columns = schema.columns(relation)
    declared = {fold_name(column): column for column in columns}
    for spelling in (name, _unquote(name), name.strip()):
        found = declared.get(fold_name(spelling))
        if found is not None:
            return found
    hint = _closest(name, columns)
    raise ToolError(
        "bad_name",
        f"no such column in {relation}: {_shown(name)}; " + (hint or f"describe_table shows the columns of {relation}"),
    )


# The candidates of a group tend to guess the same wrong names; among 64 tables a search takes 0.4 ms.
@lru_cache(maxsize=1024)
def _closest(name: str, names: tuple[str, ...]) -> str | None:
    """ "did you mean ...?" with up to three similar names; None where none is similar."""
    folded = {fold_name(known): known for known in names}
    # Comparing is quadratic in the length: what is longer than any name by far is not close to one.
    close = get_close_matches(fold_name(name[:100]), folded, n=3, cutoff=0.6)
    return f"did you mean {', '.join(_listed(folded[known]) for known in close)}?" if close else None


def _shown(name: str) -> str:
    return one_line(name, 80)
