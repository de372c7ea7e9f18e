"""Replaying recorded episodes of evaluations and training runs: which one is meant, and what the terminal is given."""

import sqlite3

import pytest

from sqale_grpo.env.episode import Episode
from sqale_grpo.env.sandbox import Sandbox
from sqale_grpo.env.text import harmless
from sqale_grpo.evaluate.replay import find_episode
from sqale_grpo.rollout.record import turns_record, write_episodes
from sqale_grpo.settings.check import ConfigError
from sqale_grpo.settings.run_folder import EPISODES
from tests.helpers.folders import write_evaluation
from tests.helpers.programs import program
from tests.helpers.rows import row

main = program("evaluate")

HOSTILE = "\x1b[2J\x1b]0;title\x07 [red]x[/red] \u202egnp.exe \u009b31m \u200b end\rover"


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    """A real episode over a database whose cells and names would drive a terminal."""
    path = tmp_path_factory.mktemp("database") / "d.sqlite"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE t (a TEXT)")
    connection.execute("INSERT INTO t VALUES (?)", (HOSTILE,))
    connection.commit()
    connection.close()
    with Sandbox(path) as sandbox:
        episode = Episode("What is a?", sandbox)
        episode.step('<think>look [bold]</think>\n{"tool": "sample_rows", "args": {"table_name": "t"}}')
        episode.step('{"tool": "describe_table", "args": {"table_name": "u"}}')
        episode.step('{"tool": "submit_sql", "args": {"sql": "SELECT a FROM t"}}')
    return {
        "turns": turns_record(episode),
        "sql": episode.finished.sql,
        "question": f"What is a? {HOSTILE}",
        "gold_sql": "SELECT a FROM t",
        "gold_tables": ["t"],
        "db_id": "d",
        "ended_by": episode.finished.ended_by,
    }


def training_run(folder, played):
    for update in (0, 1, 12):
        rows = [
            {**played, "update": update, "question_id": name, "candidate": i, "tier": "equivalent", "reward": 3.0}
            for name in ("q1", "q#2")
            for i in range(2)
        ]
        write_episodes(folder / EPISODES, update, rows)
    return folder


def test_an_evaluations_episode_is_shown_turn_by_turn(tmp_path, played, capsys):
    changes = {**played, "message": f"1 of 1 row {HOSTILE}"}
    folder = write_evaluation(tmp_path / "e", [row("a", "executable"), row("b", "executable", **changes)])
    assert main(["replay", str(folder), "--episode", "b"]) == 0
    shown = capsys.readouterr().out
    for part in ("turn 1", "turn 2", "turn 3", "look [bold]", "describe_table – bad_name", "ended by submit_sql"):
        assert part in shown
    assert "[5 tool turns left before you must answer]" in shown
    assert "SELECT a FROM t" in shown and "executable, reward 1" in shown


def test_what_was_recorded_never_drives_the_terminal(tmp_path, played, capsys):
    changes = {**played, "message": HOSTILE, "db_id": HOSTILE, "difficulty": HOSTILE}
    folder = write_evaluation(tmp_path / "e", [row(f"b{HOSTILE}", "executable", **changes)])
    assert main(["replay", str(folder), "--episode", f"b{HOSTILE}"]) == 0
    shown = capsys.readouterr().out
    assert not {"\x1b", "\x07", "\r", "\u202e", "\u009b", "\u200b"} & set(shown)
    assert shown.count("[red]x[/red]") >= 5 and "\\x1b[2J" in shown and "\\u202e" in shown
    assert main(["replay", str(folder), "--episode", "\x1b[2J"]) == 2
    assert "\x1b" not in capsys.readouterr().err


def test_letters_of_any_script_stay():
    assert harmless("Größe 名前 naïve\tx\ny") == "Größe 名前 naïve\tx\ny"
    assert harmless("\udc80\u2028\U000e0041") == "\\udc80\\u2028\\U000e0041"


@pytest.mark.parametrize(
    ("wanted", "key"),
    [
        ("q1", "q1#0@12"),
        ("q1#1", "q1#1@12"),
        ("q1@0", "q1#0@0"),
        ("q1#1@1", "q1#1@1"),
        ("q#2", "q#2#0@12"),
        ("q#2#1@0", "q#2#1@0"),
    ],
)
def test_an_episode_of_a_training_run_is_named_by_candidate_and_update(tmp_path, played, wanted, key):
    found = find_episode(training_run(tmp_path, played), wanted)
    assert found["key"] == key
    assert (found["question_id"], found["candidate"], found["update"]) == (
        key.rpartition("#")[0],
        int(key.rpartition("#")[2].partition("@")[0]),
        int(key.rpartition("@")[2]),
    )
    assert key not in found["others"]


def test_an_unknown_episode_is_answered_with_the_nearest(tmp_path, played, capsys):
    run = training_run(tmp_path / "run", played)
    with pytest.raises(ConfigError, match=r"no episode q1#7@12 in .*; the nearest are q1#[01]@1"):
        find_episode(run, "q1#7@12")
    assert main(["replay", str(run), "--episode", "zzz"]) == 2
    assert "the nearest are" in capsys.readouterr().err
    assert main(["replay", str(tmp_path), "--episode", "q1"]) == 2
    assert "no episodes in" in capsys.readouterr().err
