"""Protocol beyond the case files: the optional limits, error texts, hostile completions, final answers, query keys."""

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sqale_grpo.env.protocol import SIGNATURES, CallError, ToolCall, final_sql, parse_turn, same_query_key

COLUMN = {"table_name": "t", "column_name": "c"}


def written(tool: str, **args: object) -> str:
    return json.dumps({"tool": tool, "args": args})


@pytest.mark.parametrize(
    ("tool", "args"),
    [("sample_rows", {"table_name": "t"}), ("distinct_values", COLUMN)],
)
def test_limit_is_an_optional_whole_number(tool, args):
    assert parse_turn(written(tool, **args)) == [ToolCall(tool, args)]
    for limit in (1, -3, 10**30):
        assert parse_turn(written(tool, **args, limit=limit)) == [ToolCall(tool, {**args, "limit": limit})]
    for limit in ("5", 5.0, True, None, [5]):
        assert [entry.kind for entry in parse_turn(written(tool, **args, limit=limit))] == ["bad_args"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"tool": "run"}', 'unknown tool "run"; the tools are list_tables, describe_table,'),
        ('{"tool": {"a": "' + "x" * 200 + '"}}', 'unknown tool "{\\"a\\": \\"xxx'),
        (
            written("join_path", table_a="a"),
            "join_path: argument table_b is missing; it takes table_a, table_b, inside",
        ),
        (written("sample_rows", table="a"), 'sample_rows: unknown argument "table"; it takes table_name, limit (opt'),
        (written("run_query", sql=1), "run_query: argument sql must be text; it takes sql, inside args"),
        (written("sample_rows", table_name="a", limit="2"), "sample_rows: argument limit must be a whole number; "),
        (
            '{"tool": "list_tables", "args": []}',
            "list_tables: args is no object; it takes after (optional), inside args",
        ),
        ('{"tool": "list_tables",}', "the tool call is not valid JSON (illegal trailing comma"),
        ('{"tool": "list_tables", "args": {"n": NaN}}', "the tool call is not valid JSON (a number that JSON does not"),
        ('{"tool": ' + "[" * 100_000 + "]" * 100_000 + "}", "the tool call is not valid JSON (nested too deeply)"),
        ("words", "no tool call found; reply with one JSON object"),
    ],
)
def test_error_texts_name_the_mistake_and_what_would_be_right(text, message):
    (error,) = parse_turn(text)
    assert isinstance(error, CallError)
    # Python 3.13 says "illegal trailing comma", earlier ones that a name was expected.
    if "trailing comma" in message:
        message = "the tool call is not valid JSON ("
    assert error.message.startswith(message) and "\n" not in error.message and len(error.message) < 300


def test_keys_beside_tool_and_args_do_not_matter():
    assert parse_turn('{"thought": "x", "tool": "list_tables"}') == [ToolCall("list_tables", {})]


@pytest.mark.parametrize(
    ("broken", "kinds"),
    [
        # Braces inside strings do not count, so the object ends where it should.
        ('{"tool": "run_query", "args": {"sql": "SELECT \'{\' \\d"}}', ["bad_json", "list_tables"]),
        ('{"tool": "run_query", "args": {"sql": "}}}" }, }', ["bad_json", "list_tables"]),
        # A quote that never closes: the object ends before the next call.
        ('{"tool": "run_query", "args": {"sql": "SELECT 1}}', ["bad_json", "list_tables"]),
        ('{"tool": "run_query", "args": {"sql": "SELECT \\', ["bad_json", "list_tables"]),
        ("{'tool': 'list_tables'}", ["bad_json", "list_tables"]),
        ("{tool: list_tables}", ["bad_json", "list_tables"]),
        ('{“tool”: "list_tables"}', ["bad_json", "list_tables"]),
        ("a set {x | x > 0} and a lone {", ["list_tables"]),
        ("{toolbox}", ["list_tables"]),
    ],
)
def test_a_good_call_after_something_broken_is_found(broken, kinds):
    found = parse_turn(f'{broken}\n{{"tool": "list_tables"}}')
    assert [entry.kind if isinstance(entry, CallError) else entry.tool for entry in found] == kinds


@pytest.mark.parametrize(
    "text",
    [
        "{" * 200_000,
        '{"tool": ' * 5_000,
        '{"a": ' * 50_000,
        '{"tool": "x" ' * 5_000,
        '{"tool": "run_query", "args": {"sql": "' * 5_000,
        '{"tool": "\\' * 5_000,
        '{"a": {}} ' * 20_000,
    ],
)
def test_long_hostile_completions_take_no_time(text):
    start = time.process_time()
    parse_turn(text)
    # Linear up to the recursion limit's worth of nesting; half a megabyte that takes quadratic time takes minutes.
    assert time.process_time() - start < 3


PIECES = st.sampled_from(
    ["{", "}", '"', "'", "\\", "[", "]", ":", ",", "tool", '{"tool": "list_tables"}', '{"tool":', " ", "\n", "</think>"]
)


@given(st.lists(PIECES | st.text(max_size=3), max_size=30).map("".join))
def test_any_text_gives_entries_that_fit_their_signature(text):
    entries = parse_turn(text)
    assert entries
    for entry in entries:
        if isinstance(entry, ToolCall):
            assert set(entry.args) <= set(SIGNATURES[entry.tool])
        else:
            assert "\n" not in entry.message
    assert ("no_call" in [getattr(entry, "kind", None) for entry in entries]) <= (len(entries) == 1)
    assert isinstance(final_sql(text), str)


CALLS = st.sampled_from(
    [written("list_tables"), written("run_query", sql="SELECT '}{\"'"), written("sample_rows", table_name="a", limit=2)]
)


@given(st.lists(CALLS, min_size=1, max_size=6), st.sampled_from(["", "\n", ", ", " prose {x} ", "```json\n", "}"]))
def test_calls_are_found_whatever_stands_between_them(calls, between):
    found = parse_turn(between + between.join(calls) + between)
    assert [{"tool": entry.tool, "args": entry.args} for entry in found] == [json.loads(call) for call in calls]


@pytest.mark.parametrize(
    "text",
    [
        "SELECT 1",
        "  SELECT 1 ; \n;",
        "<think>SELECT 2</think>\n\nSELECT 1",
        "```sql\nSELECT 1;\n```",
        "```SQL SELECT 1```",
        "```\nSELECT 1\n```",
        "```sqlite\nSELECT 1",
        "SELECT 1\n```",
        "Select what is needed:\n```sql\nSELECT 1\n```",
        "Here you are:\n```sql\nSELECT 1\n```\nIt counts.",
        "First:\n```sql\nSELECT 0\n```\nBetter:\n```sql\nSELECT 1\n```",
        "`SELECT 1`",
        "SQL: SELECT 1",
        "**Final SQL:** SELECT 1",
        "Here is the final query:\nSELECT 1",
        "The answer is: SELECT 1;",
        "sql\nSELECT 1",
        '{"tool": "submit_sql", "args": {"sql": "SELECT 1;"}}',
        '```json\n{"tool": "submit_sql", "args": {"sql": "SELECT 1"}}\n```',
        'X {"tool": "submit_sql", "args": {"sql": "SELECT 1"}}\n{"tool": "submit_sql", "args": {"sql": "SELECT 2"}}',
    ],
)
def test_final_answers(text):
    assert final_sql(text) == "SELECT 1"


@pytest.mark.parametrize("text", ["", "  \n", ";", "<think>SELECT 1</think>", "```sql\n```", "```"])
def test_an_empty_final_answer(text):
    assert final_sql(text) == ""


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 'the query: x'",
        'select "sql: " from t',
        "WITH answer AS (SELECT 'a:b') SELECT * FROM answer",
        "-- the query:\nSELECT 1",
        "(SELECT 1)",
        "VALUES ('sql: 1')",
        "SELECT ';' FROM t WHERE x = '```' OR x = '``` '",
        "SELECT * FROM `t`",
    ],
)
def test_sql_is_not_mistaken_for_a_label(sql):
    assert final_sql(sql) == sql


@pytest.mark.parametrize(
    "other",
    ["SELECT a FROM t", "  SELECT\n\ta   FROM t ; ", "SELECT a FROM t;;", "SELECT a\r\nFROM t\n;\n"],
)
def test_white_space_and_semicolons_do_not_make_another_query(other):
    assert same_query_key(other) == same_query_key("SELECT a FROM t")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("SELECT 'a  b'", "SELECT 'a b'"),
        ("SELECT 'it''s  x'", "SELECT 'it''s x'"),
        ('SELECT "a  b"', 'SELECT "a b"'),
        ("SELECT [a  b]", "SELECT [a b]"),
        ("SELECT `a\tb`", "SELECT `a b`"),
        ("SELECT 1 -- x\n + 1", "SELECT 1 -- x + 1"),
        ("SELECT a FROM t", "select a from t"),
        ("SELECT a FROM t", "SELECT a FROM u"),
        ("SELECT ab", "SELECT a b"),
    ],
)
def test_queries_that_differ_are_told_apart(one, other):
    assert same_query_key(one) != same_query_key(other)


@pytest.mark.parametrize("part", ["[", "/*", "/*a", "'", '"', "`", "['", "x ", ";"])
def test_unclosed_quotes_take_no_more_time_than_closed_ones(part):
    text = part * (120_001 // len(part))
    started = time.process_time()
    assert same_query_key(text + "  x") == same_query_key(text + "  x;")
    assert time.process_time() - started < 1


@pytest.mark.parametrize(
    "call, says",
    [
        ('{"tool": "run_query", "arguments": {"sql": "SELECT 1"}}', 'args is called "arguments"; its name is args'),
        ('{"tool": "run_query", "sql": "SELECT 1"}', "argument sql stands beside args"),
        ('{"tool": "sample_rows", "args": {"table_name": "a"}, "limit": 3}', "argument limit stands beside args"),
    ],
)
def test_arguments_in_another_place_are_an_error_that_says_so(call, says):
    (error,) = parse_turn(call)
    assert isinstance(error, CallError) and error.kind == "bad_args" and says in error.message


def test_blanks_cost_time_in_proportion():
    start = time.process_time()
    parse_turn("</think>{tool" + " " * 300_000 + "}")
    assert time.process_time() - start < 3
