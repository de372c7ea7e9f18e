"""Tools: the text that each gives, for good and for wrong arguments."""

import json
import sqlite3
from contextlib import closing

import pytest

from sqale_grpo.env.protocol import SIGNATURES, ToolCall
from sqale_grpo.env.sandbox import Sandbox
from sqale_grpo.env.schema import SchemaGraph
from sqale_grpo.env.tools import EpisodeLimits, ToolResult, run_tool

LIMITS = EpisodeLimits()


@pytest.fixture
def ask(shop):
    """ask(tool, **args) -> ToolResult on the shop."""
    return lambda tool, limits=LIMITS, **args: run_tool(ToolCall(tool, args), shop, limits)


def test_list_tables(ask):
    assert ask("list_tables") == ToolResult(
        'customers, order items, Straße, returns, select, "a, b", texts, empty\nViews: spenders'
    )


def test_list_tables_names_every_table(ask):
    tiny = EpisodeLimits(result_chars=10)
    assert ask("list_tables", tiny).text == ask("list_tables").text


def test_an_empty_database(tmp_path):
    file = tmp_path / "empty.sqlite"
    file.touch()
    with Sandbox(file) as sandbox:
        assert run_tool(ToolCall("list_tables", {}), sandbox, LIMITS).text == "(no tables)"
        assert run_tool(ToolCall("foreign_keys", {}), sandbox, LIMITS).text == "(no declared foreign keys)"
        wrong = run_tool(ToolCall("describe_table", {"table_name": "x"}), sandbox, LIMITS)
        assert wrong.text == "Error: no such table: x; list_tables gives the names"


def test_describe_table_is_the_stored_statement(ask):
    assert ask("describe_table", table_name="EMPTY") == ToolResult(
        "CREATE TABLE empty(x INTEGER, y TEXT)", None, frozenset({"empty"})
    )
    assert ask("describe_table", table_name="order items").text.endswith(") WITHOUT ROWID")
    assert ask("describe_table", table_name="texts").text == "CREATE VIRTUAL TABLE texts USING fts5(body)"
    # A view is described, but it opens no table.
    view = ask("describe_table", table_name="spenders")
    assert view.text.startswith("CREATE VIEW spenders") and not view.opened


@pytest.mark.parametrize(
    ("written", "declared"),
    [
        ("ORDER items", "order items"),
        ('"order items"', "order items"),
        ("[Order Items]", "order items"),
        ("`order items`", "order items"),
        (" select ", "select"),
        ("STRAßE", "Straße"),
        ("A, B", "a, b"),
        ("'customers'", "customers"),
    ],
)
def test_names_are_matched_as_sqlite_does(ask, written, declared):
    for tool in ("describe_table", "sample_rows"):
        assert ask(tool, table_name=written).opened == {declared}
    assert ask("join_path", table_a=written, table_b=declared).text == declared
    assert ask("foreign_keys", table_name=written).error is None


@pytest.mark.parametrize(
    ("written", "hint"),
    [
        ("customer", "did you mean customers?"),
        ("Strasse", "did you mean Straße?"),
        ("order_items", "did you mean order items?"),
        ("a,b", 'did you mean "a, b"?'),
        ("spender", "did you mean spenders?"),
        ("zzz", "list_tables gives the names"),
        ("customers_data", "did you mean customers?"),
        ("sqlite_sequence", "list_tables gives the names"),
        ("texts_data", "did you mean texts?"),
        ("", "list_tables gives the names"),
    ],
)
def test_a_wrong_table_gets_the_closest_real_ones(ask, written, hint):
    for answer in (
        ask("describe_table", table_name=written),
        ask("foreign_keys", table_name=written),
        ask("join_path", table_a="customers", table_b=written),
        ask("sample_rows", table_name=written),
        ask("distinct_values", table_name=written, column_name="x"),
    ):
        assert answer == ToolResult(f"Error: no such table: {written}; {hint}", "bad_name")


def test_foreign_keys(ask):
    own = "order items.customer -> customers.id"
    composite = "returns.o -> order items.order no\nreturns.l -> order items.line"
    self_reference = "select.parent -> select.id"
    assert ask("foreign_keys").text == f"{own}\n{composite}\n{self_reference}"
    # The keys that start at the table come first, then those that end there.
    assert ask("foreign_keys", table_name="order items").text == f"{own}\n{composite}"
    assert ask("foreign_keys", table_name="customers").text == own
    assert ask("foreign_keys", table_name="Select").text == self_reference
    assert ask("foreign_keys", table_name="empty").text == "(no declared foreign keys)"
    assert ask("foreign_keys", table_name="spenders").text == "(no declared foreign keys)"


def test_a_tables_own_keys_come_first_and_a_shared_pair_once(tmp_path):
    file = tmp_path / "keys.sqlite"
    with closing(sqlite3.connect(file)) as connection:
        connection.executescript(
            "CREATE TABLE child(p INTEGER, q INTEGER REFERENCES mid(y), FOREIGN KEY(p, q) REFERENCES mid(x, y));"
            "CREATE TABLE mid(x INTEGER, y INTEGER, up INTEGER REFERENCES top(id), PRIMARY KEY(x, y));"
            "CREATE TABLE top(id INTEGER PRIMARY KEY);"
        )
    with Sandbox(file) as sandbox:
        answer = run_tool(ToolCall("foreign_keys", {"table_name": "mid"}), sandbox, LIMITS)
    assert answer.text == "mid.up -> top.id\nchild.q -> mid.y\nchild.p -> mid.x"


def test_join_path(ask):
    assert ask("join_path", table_a="Returns", table_b="CUSTOMERS").text == "returns → order items → customers"
    assert ask("join_path", table_a="empty", table_b="empty").text == "empty"
    nowhere = "(no chain of declared foreign keys joins empty and customers)"
    assert ask("join_path", table_a="empty", table_b="customers") == ToolResult(nowhere)


def test_sample_rows(ask):
    answer = ask("sample_rows", table_name="Straße")
    assert answer.text == "id | Größe\n0 | S\n1 | M\n2 | L\n3 | S\n4 | M"
    assert answer.opened == {"Straße"}
    assert len(ask("sample_rows", table_name="Straße", limit=10).text.splitlines()) == 11
    assert len(ask("sample_rows", table_name="Straße", limit=20).text.splitlines()) == 21
    capped = ask("sample_rows", table_name="Straße", limit=10**30).text.splitlines()
    assert len(capped) == 22 and capped[-1] == "... (showing first 20 rows; limit is at most 20)"
    assert ask("sample_rows", table_name="order items", limit=25).text.count("\n") == 7
    assert ask("sample_rows", table_name="empty").text == "x | y\n(no rows)"
    assert ask("sample_rows", table_name="texts").text == "body\n(no rows)"


def test_a_view_is_sampled_and_opens_what_it_reads(ask):
    answer = ask("sample_rows", table_name="spenders", limit=1)
    assert answer.text == "name | price\nname 1 | 0.0"
    assert answer.opened == {"customers", "order items"}


def test_distinct_values(ask):
    sizes = ask("distinct_values", table_name="straße", column_name="GRöße")
    assert sizes.error is None and sizes.opened == {"Straße"}
    assert sizes.text == "Größe\nS\nM\nL"
    some = ask("distinct_values", table_name="Straße", column_name="id", limit=2).text
    assert some == "id\n0\n1\n... (showing first 2 values; more values exist)"
    quoted = ask("distinct_values", table_name="order items", column_name='"Order No"')
    assert quoted.text == "order no\n0\n1\n2\n3"
    assert ask("distinct_values", table_name="order items", column_name="total", limit=1).error is None
    assert ask("distinct_values", table_name="customers", column_name="photo", limit=9).text.splitlines()[-1] == "None"
    assert ask("distinct_values", table_name="spenders", column_name="NAME", limit=1).opened


def test_distinct_values_is_capped(ask):
    tight = EpisodeLimits(distinct_values_cap=7)
    lines = ask("distinct_values", tight, table_name="customers", column_name="id", limit=9).text.splitlines()
    assert len(lines) == 9 and lines[-1] == "... (showing first 7 values; limit is at most 7)"


@pytest.mark.parametrize(
    ("written", "hint"),
    [
        ("nam", "did you mean name?"),
        ("Grosse", "describe_table shows the columns of customers"),
        ("rowid", "describe_table shows the columns of customers"),
    ],
)
def test_a_wrong_column_gets_the_closest_real_ones(ask, written, hint):
    answer = ask("distinct_values", table_name="customers", column_name=written)
    assert answer == ToolResult(f"Error: no such column in customers: {written}; {hint}", "bad_name")


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_below_one_is_an_error(ask, limit):
    answer = ask("sample_rows", table_name="customers", limit=limit)
    assert answer == ToolResult(f"Error: limit is {limit}; it must be between 1 and 20", "bad_args")


def test_run_query(ask):
    answer = ask("run_query", sql="SELECT id AS a, name b FROM customers WHERE id < 3 UNION SELECT NULL, 1.5")
    assert answer == ToolResult("a | b\nNone | 1.5\n1 | name 1\n2 | name 2", None, frozenset({"customers"}))


@pytest.mark.parametrize(("rows", "more"), [(0, False), (1, False), (5, False), (6, True)])
def test_run_query_previews_five_rows(ask, rows, more):
    lines = ask("run_query", sql=f"SELECT id FROM customers LIMIT {rows}").text.splitlines()
    assert lines[:2] == (["id", "1"] if rows else ["id", "(no rows)"])
    suffix = ["... (showing first 5 rows; more rows exist)"] if more else []
    assert lines[1 + max(1, min(rows, 5)) :] == suffix


def test_sqlite_master_may_be_read(ask):
    answer = ask("run_query", sql="SELECT name FROM sqlite_master WHERE type = 'view'")
    assert answer == ToolResult("name\nspenders")


@pytest.mark.parametrize(
    ("sql", "kind", "text"),
    [
        ("SELECT * FROM nope", "schema", "Error: no such table: nope"),
        ("SELEC 1", "syntax", 'Error: near "SELEC": syntax error'),
        ("DROP TABLE customers", "denied", None),
        ("SELECT 1; SELECT 2", "other", None),
        ("", "syntax", None),
        ("SELECT '\x00", "syntax", None),
    ],
)
def test_a_query_that_fails_says_why_in_one_line(ask, sql, kind, text):
    answer = ask("run_query", sql=sql)
    assert answer.error == kind and not answer.opened
    assert answer.text.startswith("Error: ") and "\n" not in answer.text
    assert text is None or answer.text == text


def test_cells(ask):
    text = ask("sample_rows", table_name="customers", limit=4).text
    heading, first, second, third, fourth = text.splitlines()
    assert heading == "id | name | note | photo"
    assert first == f"1 | name 1 | {'n' * 80}… | x'{'00FF' * 19}00…"
    assert second == "2 | name 2 | two\\r\\nlines | x'0A0B'"
    # Text that is not UTF-8 is shown, and can be encoded.
    assert third == "3 | name 3 | f\ufffdr | None"
    assert fourth == "4 | name 4 | None | None"
    text.encode()


def test_long_headings_are_cut(ask):
    long_sum = "SELECT 1" + " + 1" * 100
    assert ask("run_query", sql=long_sum).text.splitlines()[0] == ("1" + " + 1" * 100)[:80] + "…"


def test_a_long_result_is_cut_with_a_line_that_says_so(ask):
    tight = EpisodeLimits(result_chars=30)
    full = ask("describe_table", table_name="customers").text
    cut = ask("describe_table", tight, table_name="customers").text
    assert cut == full[:30] + f"\n... (result cut: first 30 of {len(full)} characters shown)"
    assert ask("describe_table", EpisodeLimits(result_chars=len(full)), table_name="customers").text == full


def test_a_long_error_is_cut(ask):
    answer = ask("run_query", sql="SELECT " + "x" * 100_000)
    assert answer.error == "schema" and len(answer.text) < 4_100


def test_surrogates_from_the_policy_do_not_come_back(ask):
    for answer in (
        ask("describe_table", table_name="\ud800"),
        ask("run_query", sql="SELECT '\ud800'"),
        ask("distinct_values", table_name="customers", column_name="\udcff"),
    ):
        assert answer.error
        answer.text.encode()


@pytest.mark.parametrize("name", ["tool_turns", "preview_rows", "cell_chars"])
def test_limits_are_positive(name):
    with pytest.raises(ValueError, match=f"episode limit {name} is 0: it must be at least 1"):
        EpisodeLimits(**{name: 0})


def test_no_tool_lets_an_exception_out_on_real_databases(shared_data):
    """Every table and column of some real databases, through every tool."""
    for file in sorted(shared_data.glob("databases/*/*.sqlite"))[::25]:
        graph = SchemaGraph.from_file(file)
        with Sandbox(file) as sandbox:
            for table in (*graph.tables, *graph.views)[:40]:
                for call in calls_on(graph, table):
                    answer = run_tool(call, sandbox, LIMITS)
                    assert answer.error is None, (file.name, call, answer)
                    json.dumps(answer.text).encode()


def calls_on(graph: SchemaGraph, table: str) -> list[ToolCall]:
    args = {"table_name": table, "table_a": table, "table_b": graph.tables[0]}
    args["column_name"] = (graph.columns(table) or ("?",))[-1]
    tools = [tool for tool in SIGNATURES if tool not in ("run_query", "submit_sql")]
    return [ToolCall(tool, {name: args[name] for name in SIGNATURES[tool] if name in args}) for tool in tools]
