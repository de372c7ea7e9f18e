"""Playing by hand: what a person types, what they see."""

import io

import pytest

from tests.helpers.programs import program

main = program("env")


@pytest.fixture
def play(shop_file, monkeypatch, capsys):
    """play(typed, *options) -> (exit code, printed text)."""

    def run(typed: str, *options: str) -> tuple[int, str]:
        monkeypatch.setattr("sys.stdin", io.StringIO(typed))
        code = main([str(shop_file), "--question", "How many?", *options])
        printed = capsys.readouterr()
        return code, printed.out + printed.err

    return run


def test_an_episode_from_prompt_to_answer(play):
    code, seen = play(
        "list_tables\njoin_path returns customers\n\n\n"
        '{"tool": "run_query", "args": {"sql": "SELECT count(*) FROM customers"}}\n\n'
        "submit_sql SELECT count(*) FROM customers\n\n"
    )
    assert code == 0
    assert "--- system\nYou are a data analyst" in seen and "Question: How many?" in seen
    # What was typed short is shown as the policy would write it.
    assert '{"tool": "join_path", "args": {"table_a": "returns", "table_b": "customers"}}' in seen
    assert "(2/2)\nreturns → order items → customers\n\n[5 tool turns left before you must answer]" in seen
    assert "count(*)\n30\n\n[4 tool turns left" in seen
    assert seen.endswith("--- ended by submit_sql\nSELECT count(*) FROM customers\n\ncount(*)\n30\n")


@pytest.mark.parametrize(
    ("typed", "call"),
    [
        ("sample_rows order items 3", '{"table_name": "order items", "limit": 3}'),
        ("sample_rows customers", '{"table_name": "customers"}'),
        ("sample_rows 3", '{"table_name": "3"}'),
        ("distinct_values Straße Größe 2", '{"table_name": "Straße", "column_name": "Größe", "limit": 2}'),
        ("foreign_keys", "{}"),
        ("run_query SELECT 1, 2", '{"sql": "SELECT 1, 2"}'),
        ("run_query", "{}"),
    ],
)
def test_short_calls(play, typed, call):
    tool = typed.split()[0]
    assert f'{{"tool": "{tool}", "args": {call}}}' in play(f"{typed}\n\n")[1]


def test_options(play):
    _, seen = play("submit_sql SELECT 1\n\nSELECT nope\n\n", "--gated", "--evidence", "a hint", "--tool-turns", "1")
    assert "Hint: a hint" in seen and "Not accepted yet" in seen and "Exploration is over" in seen
    assert "--- ended by final_turn\nSELECT nope\n\nIt does not run: no such column: nope" in seen


def test_an_answer_of_many_rows_is_shown_in_part(play):
    _, seen = play("submit_sql SELECT id FROM customers\n\n")
    assert seen.endswith("\n20\n... (first 20 rows)\n")


def test_no_answer(play):
    assert play("list_tables\n\n<think>x</think>\n\n", "--tool-turns", "1")[1].endswith(
        "ended by no_answer\n(no answer)\n\n"
    )


def test_giving_up(play):
    assert play("list_tables\n")[1].endswith("Given up: the episode has no end.\n")


def test_what_cannot_start_says_why(play, tmp_path, capsys):
    code, seen = play("", "--prompts", str(tmp_path / "gone.json"))
    assert code == 2 and seen.startswith("error: no prompts file at ")
    assert play("", "--tool-turns", "0") == (2, "error: episode limit tool_turns is 0: it must be at least 1\n")
    assert main([str(tmp_path / "gone.sqlite"), "--question", "?"]) == 2
    (tmp_path / "text.sqlite").write_text("no database")
    assert main([str(tmp_path / "text.sqlite"), "--question", "?"]) == 2
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith("error: no database file at ") and "cannot be read as a SQLite database" in second
