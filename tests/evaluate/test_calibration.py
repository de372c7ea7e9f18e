"""When an answer by vote is sure: votes as the agent counts them, the threshold, and what it answers."""

import json
from pathlib import Path

import pytest

from sqale_grpo.evaluate.calibration import Voted, best_threshold, calibration, held_out, votes_of, write_calibration
from sqale_grpo.evaluate.evaluations import Evaluation
from sqale_grpo.evaluate.other_tables import calibration_table
from sqale_grpo.evaluate.plots import calibration_plot


def rows(question: str, *candidates: tuple[int | None, bool], unstable: str = "") -> list[dict]:
    """A question's rows: class of the result (None: it did not run), and whether it is right."""
    return [
        {
            "question_id": question,
            "result_class": number,
            "tier": "equivalent" if right else "executable",
            "unstable": unstable,
        }
        for number, right in candidates
    ]


def vote(name: str, votes: int, right: bool, of: int = 4) -> Voted:
    return Voted(name, votes, of, right)


def test_a_vote_is_the_first_candidates_of_the_most_frequent_result():
    wrong, right = (0, False), (2, True)
    assert votes_of(rows("a", wrong, (None, False), right, right)) == [vote("a", 2, True)]
    assert votes_of(rows("a", wrong, right, right, wrong)) == [vote("a", 2, False)], "of equals the earlier"
    assert votes_of(rows("a", *[(None, False)] * 4)) == [vote("a", 0, False)]
    assert votes_of(rows("a", right, right) + rows("b", wrong, right, unstable="clock")) == [Voted("a", 2, 2, True)]
    assert votes_of(rows("a", right)) == [], "one candidate has no vote"


def test_the_threshold_is_where_right_less_wrong_is_most():
    votes = [vote("a", 4, True), vote("b", 4, True), vote("c", 3, True), vote("d", 2, False), vote("e", 1, False)]
    assert best_threshold(votes) == 0.75
    assert best_threshold([*votes, vote("f", 2, True), vote("g", 2, True)]) == 0.5
    assert best_threshold([vote("a", 4, True), vote("b", 3, True), vote("c", 3, False)]) == 1.0, "of equals the higher"


def test_each_half_is_answered_at_the_threshold_of_the_other():
    """Halves that want different thresholds: the figures of a half are not those of its own choice."""
    names = [f"q{number}" for number in range(12)]
    order = [each.question_id for each, _ in held_out([vote(name, 4, True) for name in names])]
    first, second = order[:6], order[6:]
    votes = [vote(name, 2, True) for name in first] + [vote(name, 2, False) for name in second]
    given = {each.question_id: answered for each, answered in held_out(votes)}
    assert len({given[name] for name in first}) == len({given[name] for name in second}) == 1
    assert (given[first[0]], given[second[0]]) == (False, True)
    assert held_out([vote("alone", 4, True)]) == []


def test_the_file_holds_threshold_curve_and_what_each_agreement_is_worth(tmp_path: Path):
    found = write_calibration(
        tmp_path,
        rows("a", *[(0, True)] * 4)
        + rows("b", *[(0, True)] * 3, (1, False))
        + rows("c", *[(0, False)] * 2, *[(1, True)] * 2),
        "1234",
    )
    saved = json.loads((tmp_path / "calibration.json").read_text())
    assert (saved["threshold"], saved["candidates"], saved["questions"], saved["identity"]) == (0.75, 4, 3, "1234")
    assert (saved["answered"]["value"], saved["accuracy"]["value"]) == (pytest.approx(2 / 3), 1.0)
    assert [(each["threshold"], each["answered"]["n"], each["accuracy"]["value"]) for each in saved["curve"]] == [
        (0.25, 3, pytest.approx(2 / 3)),
        (0.5, 3, pytest.approx(2 / 3)),
        (0.75, 3, 1.0),
        (1.0, 3, 1.0),
    ]
    assert [(each["agreement"], each["accuracy"]["value"]) for each in saved["by_agreement"]] == [
        (0.5, 0.0),
        (0.75, 1.0),
        (1.0, 1.0),
    ]
    assert found is not None and found["threshold"] == 0.75 and "curve" not in found
    assert (
        calibration(rows("a", (0, True))) is None
        and write_calibration(tmp_path / "none", rows("a", (0, True)), "") is None
    )
    assert not (tmp_path / "none").exists()


def test_tables_and_plots_show_the_curve(tmp_path: Path):
    played = rows("a", *[(0, True)] * 4) + rows("b", *[(0, False)] * 2, (1, True), (2, False))
    played += rows("c", (0, True), (1, True), (2, False), (None, False))
    evaluations = [
        Evaluation("policy", "m", "demo", "full", played),
        Evaluation("one", "n", "demo", "full", rows("a", (0, True))),
    ]
    table = calibration_table(evaluations, "demo")
    assert table is not None
    assert [row[2] for row in table.rows] == [
        "1 of 4",
        "2 of 4",
        "3 of 4",
        "4 of 4 (calibrated)",
        "calibrated on the other half",
    ]
    values = {each.metric: each.value for each in table.figures}
    assert values["answered, 1 of 4"] == 1.0 and values["accuracy, 1 of 4"] == pytest.approx(2 / 3)
    assert values["answered, 4 of 4"] == pytest.approx(1 / 3) and values["accuracy, 4 of 4"] == 1.0
    drawn = calibration_plot(evaluations, "demo", tmp_path / "calibration_demo.svg")
    assert drawn is not None and "questions answered" in drawn.read_text()
    assert calibration_table(evaluations[1:], "demo") is None
    assert calibration_plot(evaluations[1:], "demo", tmp_path / "x.svg") is None
