"""Names as SQL takes them; untrusted text as a terminal may show it."""

import sqlite3

import pytest

from sqale_grpo.env.text import harmless, quote_name


@pytest.mark.parametrize("name", ["order", 'a"b', '"', "a b", "x; DROP TABLE t", "[a]", "Größe", "a\nb", "'", ""])
def test_a_quoted_name_is_that_name(name: str) -> None:
    with sqlite3.connect(":memory:") as connection:
        connection.execute(f"CREATE TABLE {quote_name(name)} ({quote_name('c' + name)})")
        assert connection.execute("SELECT name FROM sqlite_master").fetchall() == [(name,)]
        assert connection.execute(f"SELECT {quote_name('c' + name)} FROM {quote_name(name)}").description[0][0] == (
            "c" + name
        )
    connection.close()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[2J\x1b[31mHACK", "\\x1b[2J\\x1b[31mHACK"),
        ("\x9b2J", "\\x9b2J"),
        ("a\rb\x07\x08", "a\\x0db\\x07\\x08"),
        ("\u202egpj.exe", "\\u202egpj.exe"),
        ("two\nlines\tof Größe", "two\nlines\tof Größe"),
    ],
)
def test_nothing_is_left_that_a_terminal_obeys(text: str, shown: str) -> None:
    assert harmless(text) == shown
