"""sqale-grpo reward: scores a file's lines, and says where a line is wrong."""

import json
from pathlib import Path

import pytest

from sqale_grpo.reward import Outcome, command
from sqale_grpo.reward.score import score_group, void
from tests.helpers.programs import program
from tests.reward.test_score import ANSWERS, GOLDS, Question

main = program("reward")


@pytest.fixture
def write(tmp_path):
    def lines(*cases):
        file = tmp_path / "cases.jsonl"
        file.write_text("\n".join(case if isinstance(case, str) else json.dumps(case) for case in cases) + "\n")
        return str(file)

    return lines


def test_outcomes_are_those_of_score_group(write, shop, shop_file, capsys):
    cases = [{"id": gold, "db": shop_file.name, "gold": gold, "predictions": ANSWERS} for gold in GOLDS]
    assert main([write(*cases), "--databases", str(shop_file.parent)]) == 0
    out, err = capsys.readouterr()
    lines = [json.loads(line) for line in out.splitlines()]
    assert [line["id"] for line in lines] == GOLDS
    for gold, line in zip(GOLDS, lines, strict=True):
        for printed, outcome in zip(
            line["outcomes"], score_group(Question(gold), shop_file, ANSWERS, shop), strict=True
        ):
            assert printed.pop("reward") == pytest.approx(outcome.reward, abs=1e-6)
            assert printed.pop("f1") == (None if outcome.f1 is None else pytest.approx(outcome.f1, abs=1e-6))
            assert printed == {name: getattr(outcome, name) for name in printed}
    assert f"{len(GOLDS) * len(ANSWERS)} answers: " in err


def test_a_gold_query_that_fails_is_reported_and_the_rest_scored(write, shop_file, capsys):
    good = {"db": str(shop_file), "gold": "SELECT 1", "predictions": ["SELECT 1", None]}
    assert main([write(good | {"gold": "SELECT x"}, "", good)]) == 1
    out, err = capsys.readouterr()
    failed, scored = map(json.loads, out.splitlines())
    assert "does not run" in failed["gold_error"]
    assert [outcome["tier"] for outcome in scored["outcomes"]] == ["equivalent", "invalid"]
    assert "1 gold queries did not run" in err


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 2: "),
        ("[]", 'line 2: expected {"db": path'),
        ('{"db": "d", "gold": 1, "predictions": []}', 'line 2: expected {"db": path'),
        ('{"db": "d", "gold": "SELECT 1"}', "line 2: predictions must be a list"),
        ('{"db": "d", "gold": "SELECT 1", "predictions": [1]}', "line 2: predictions must be a list"),
        ('{"db": "d", "gold": "SELECT 1", "predictions": []}', "line 2: no database file at d; --databases names"),
    ],
)
def test_a_wrong_line_is_named_before_anything_is_scored(write, shop_file, capsys, line, message):
    good = {"db": str(shop_file), "gold": "SELECT 1", "predictions": []}
    assert main([write(good, line)]) == 2
    out, err = capsys.readouterr()
    assert out == "" and message in err and "cases.jsonl" in err


def test_a_database_that_cannot_be_read_as_it_is(write, tmp_path, capsys):
    (tmp_path / "d.sqlite").write_bytes(b"")
    (tmp_path / "d.sqlite-wal").write_bytes(b"x")
    assert main([write({"db": str(tmp_path / "d.sqlite"), "gold": "SELECT 1", "predictions": []})]) == 2
    assert "cases.jsonl, line 1: " in (error := capsys.readouterr().err) and "d.sqlite-wal holds changes" in error


def test_wrong_options(write, capsys, tmp_path):
    assert main([str(tmp_path / "none.jsonl")]) == 2
    assert "none.jsonl" in capsys.readouterr().err
    assert main([write(), "--seconds", "0"]) == 2
    assert "seconds is 0.0: it must be a number above 0" in capsys.readouterr().err


def test_a_void_answer_has_no_reward_and_counts_in_no_mean():
    case = command.Case("q", "SELECT 1", Path("d.sqlite"), [None, None])
    outcomes = [void("a disk that cannot be read"), Outcome("equivalent", 3.0)]
    line = json.loads(json.dumps(command.printed(case, outcomes), allow_nan=False))
    assert line["outcomes"][0] == {
        "tier": "void", "reward": None, "f1": None, "join_share": None, "agrees": False, "error": "machine",
        "message": "a disk that cannot be read",
    }  # fmt: skip
    assert command.summary(outcomes, 0) == "2 answers: 1 void, 1 equivalent; mean reward 3.000"
    assert command.summary(outcomes[:1], 0) == "1 answers: 1 void; no reward"
