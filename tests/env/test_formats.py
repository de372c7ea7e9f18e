"""printf and format: their results are SQLite's, and no width takes more time than a value may be long."""

import sqlite3
import time
from collections.abc import Iterator

import pytest

from sqale_grpo.env.formats import shows_its_widths, widest
from sqale_grpo.env.limits import Limits, SqlError
from sqale_grpo.env.sandbox import Sandbox, WorkerPool
from tests.helpers.databases import write_database


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    path = write_database(
        tmp_path_factory.mktemp("formats") / "d.sqlite",
        "CREATE TABLE t(format TEXT, n INTEGER); INSERT INTO t VALUES('%5d', 7), ('%-4d|', 8);"
        "CREATE VIEW v AS SELECT printf('%.*f', n - 6, 1.25) AS f FROM t",
    )
    with WorkerPool(1) as pool, Sandbox(path, Limits(seconds=60.0), pool) as sandbox:
        yield sandbox


PRINTED = [
    "printf('%05.1f', 3.14159)",
    "printf('%,d', 1234567)",
    "printf('%s and %s', 'it''s', NULL)",
    "printf('%*d|%-*d|', 6, 42, 6, 42)",
    "printf('%.*c', 5, 'x')",
    "printf('%.*c', '5 of them', 'x')",
    "printf('%' || '08.3f', 2.5)",
    "printf('%!.15g', 0.1)",
    "printf('%*s', -5, 'a')",
    "printf('%.3s|%%|%c', 'abcdef', 'xyz')",
    "printf('%d', 9000000000)",
    "printf()",
    "printf(NULL, 1)",
    "printf(x'256473', 1)",
    "printf('%*d', 9, 5000000)",
    "format('%s', '%999999999d')",
    "\"printf\"/* a comment */('%2d', 1)",
    "group_concat(printf(format, n)) FROM t",
    "group_concat(format) FROM t",
    "group_concat(f) FROM v",
]


@pytest.mark.parametrize("call", PRINTED)
def test_results_are_sqlites_own(sandbox: Sandbox, call: str) -> None:
    bare = sqlite3.connect(sandbox.database)
    try:
        expected = bare.execute(f"SELECT {call}").fetchall()
    finally:
        bare.close()
    assert sandbox.execute(f"SELECT {call}").rows == expected


@pytest.mark.parametrize(
    "call",
    [
        "printf('%.*c', 900000000, 'x')",
        "printf('%.900000000c', 'x')",
        "format('%.*c', -900000000, 'x')",
        "printf('%s %.*c', 1, '900000000', 'x')",
        "printf('%.' || 900000000 || 'c', 'x')",
        "printf('%*d', 900000000, 1)",
        "[printf]('%' || '*d', 9e12, 1)",
    ],
)
def test_a_width_over_the_limit_for_values_is_refused_at_once(sandbox: Sandbox, call: str) -> None:
    sandbox.execute("SELECT 1")
    start = time.monotonic()
    with pytest.raises(SqlError, match="memory: string or blob too big"):
        sandbox.execute(f"SELECT length({call})")
    assert time.monotonic() - start < 5.0  # the call itself takes that long on an old machine, and counts no step
    assert sandbox.execute("SELECT printf('%03d', 7)").rows == [("007",)]


def test_many_calls_are_looked_at_once(sandbox: Sandbox) -> None:
    """As many as a statement may have columns, with a megabyte of text behind them."""
    padding = f"/* {'printf ' * 100_000} */"
    columns = ", ".join(["printf('%d', 1)"] * 2000)
    start = time.monotonic()
    assert sandbox.execute(f"SELECT {columns} {padding}").rows == [("1",) * 2000]
    assert time.monotonic() - start < 20.0
    assert sandbox.execute("SELECT printf('%*d' || '%1000000d', 5, 1, 2)").rows == [(None,)]


def test_a_call_that_took_all_the_time_is_a_time_out_however_it_ends(sandbox: Sandbox) -> None:
    with Sandbox(sandbox.database, Limits(seconds=0.002), sandbox.pool) as hasty:
        slow = "SELECT length(printf('%.*c', 900000, 'x')) " + "+ length(printf('%.*c', 900000, 'x')) " * 20
        with pytest.raises(SqlError, match="timeout"):
            hasty.execute(slow)


def test_what_a_statement_shows() -> None:
    shown = ["SELECT printf('%5d', 1)", "SELECT format FROM t", "SELECT printf ( 'it''s %s' , 1)", "SELECT 1", "printf"]
    hidden = ["SELECT printf('%*d', 1, 1)", "SELECT printf(a, 1)", "SELECT printf('%' || '2d', 1)",
              "SELECT format/**/('%d', 1)", "SELECT printf('%2000001d', 1)"]  # fmt: skip
    assert [shows_its_widths(sql, 2_000_000) for sql in shown + hidden] == [True] * 5 + [False] * 5


def test_widths_come_from_their_own_arguments() -> None:
    assert widest("%*d %s %.*f", (3, 10**9, 10**9, 4, 1.0)) == 4
    assert widest("%d %*d", (10**9, 7)) == 7
    assert widest("100%% %12.5f", (1.0,)) == 12


@pytest.mark.parametrize("text", ["printf(" * 100_000, "printf('" * 100_000, "printf/*" * 100_000, "format " * 100_000])
def test_hostile_texts_take_no_time(text: str) -> None:
    start = time.process_time()
    shows_its_widths(text, 1)
    assert time.process_time() - start < 2.0
