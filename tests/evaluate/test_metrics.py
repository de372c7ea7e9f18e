"""Evaluation metrics on hand-computed examples."""

from itertools import combinations

import pytest

from sqale_grpo.evaluate.chunk import opened_all
from sqale_grpo.evaluate.metrics import majority, pass_at, run_difference, summarize
from sqale_grpo.rollout.rates import wilson
from tests.helpers.rows import row


def test_recall_matches_names_as_sqlite_does():
    assert opened_all(["Orders", "items"], {"orders", "ITEMS", "x"})
    assert not opened_all(["Orders"], {"order"})
    assert not opened_all(["Äpfel"], {"äpfel"})  # SQLite folds ASCII alone


def test_a_summary_has_every_metric_with_its_interval():
    rows = [
        row("a", "equivalent", official=True, unstated=1, unstated_seen=1, unstated_used=1),
        row("b", "executable", official=True, unstated=2, unstated_seen=1, recall=False, difficulty="hard"),
        row("c", "invalid", official=False, ended_by="no_answer", rounds=8, calls=11, gold_empty=True),
        row("d", "equivalent", official=None),
    ]
    summary = summarize(rows, parameters=2e9)
    assert (summary["n"], summary["episodes"]) == (4, 4)
    assert (summary["equivalent"], summary["invalid"], summary["table_recall"]) == (0.5, 0.25, 0.75)
    assert summary["intervals"]["equivalent"] == wilson(2, 4)
    assert summary["official"] == pytest.approx(2 / 3)
    assert summary["intervals"]["official"] == wilson(2, 3)
    assert (summary["unstated_literals_seen"], summary["unstated_literals_used"]) == (2 / 3, 1 / 3)
    assert summary["unstated_literals_used_of_seen"] == 0.5
    assert (summary["rounds"], summary["calls"], summary["calls_per_round"]) == (5, 6.5, 1.3)
    assert summary["ended_by"] == {"no_answer": 0.25, "submit_sql": 0.75}
    assert summary["tflops"] == pytest.approx(2 * 2e9 * 500 / 1e12)
    assert summary["tflops_reprocessed"] == pytest.approx(2 * 2e9 * 1400 / 1e12)
    assert summary["gold_empty"] == {"n": 1, "equivalent": 0}
    assert summary["by_difficulty"]["hard"]["equivalent"] == 0
    assert summary["by_difficulty"]["simple"]["n"] == 3
    for name, interval in summary["intervals"].items():
        value = summary["ended_by"][name[9:]] if name.startswith("ended_by/") else summary[name]
        assert (interval is None) == (value is None), name
        if interval:
            assert interval[0] <= value + 1e-9 and value <= interval[1] + 1e-9, name


def test_what_nothing_speaks_of_is_none():
    summary = summarize([row("a", "equivalent"), row("b", "parsable")])
    assert summary["official"] is None and summary["unstated_literals_seen"] is None and summary["tflops"] is None


def test_questions_with_an_unstable_gold_stand_apart():
    rows = [
        row("a", "equivalent"),
        row("b", "executable"),
        row("c", "equivalent", unstable="clock"),
        row("d", "invalid", unstable="random"),
    ]
    summary = summarize(rows)
    assert (summary["n"], summary["equivalent"], summary["literals_seen"]) == (2, 0.5, 0.5)
    assert summary["unstable"] == {"n": 2, "equivalent": 1}
    with pytest.raises(ValueError, match="2 questions, all with an unstable gold"):
        summarize(rows[2:])


@pytest.mark.parametrize("right", range(6))
@pytest.mark.parametrize("k", [1, 2, 5])
def test_pass_at_k_is_the_mean_over_all_choices_of_k_candidates(right, k):
    candidates = [i < right for i in range(5)]
    choices = [any(choice) for choice in combinations(candidates, k)]
    assert pass_at(5, right, k) == pytest.approx(sum(choices) / len(choices))


@pytest.mark.parametrize(
    ("votes", "share"),
    [
        ([("equivalent", 0), ("equivalent", 0), ("executable", 1)], 1.0),
        ([("equivalent", 0), ("executable", 1), ("executable", 1)], 0.0),
        ([("equivalent", 0), ("executable", 1)], 0.5),  # a tie: one of the two is drawn
        ([("equivalent", 0), ("executable", 1), ("executable", 2), ("parsable", None)], 1 / 3),
        ([("equivalent", 0), ("parsable", None), ("parsable", None), ("invalid", None)], 1.0),
        ([("parsable", None), ("invalid", None)], 0.0),
    ],
)
def test_majority_counts_equal_results(votes, share):
    assert majority([row("q", tier, result_class=number) for tier, number in votes]) == pytest.approx(share)


def test_several_candidates_count_once_a_question():
    rows = [
        row(f"q{question}", "equivalent" if right else "executable", candidate=i, result_class=int(not right))
        for question in range(20)
        for i, right in enumerate([question < 10] * 2 + [False] * 2)
    ]
    summary = summarize(rows)
    assert (summary["n"], summary["episodes"], summary["candidates"]) == (20, 80, 4)
    assert (summary["pass@1"], summary["pass@4"]) == (0.25, 0.5)
    assert summary["pass@2"] == pytest.approx(0.5 * (1 - 1 / 6))
    assert summary["majority@4"] == pytest.approx(0.25)
    assert summary["equivalent"] == 0.25
    low, high = summary["intervals"]["equivalent"]
    assert high - low > wilson(20, 80)[1] - wilson(20, 80)[0]  # 20 questions, not 80 answers


def test_two_runs_are_compared_question_by_question():
    before = [row(q, "executable") for q in "abcd"]
    after = [row(q, "equivalent" if q in "ab" else "executable") for q in "dcba"]
    difference, (low, high) = run_difference(before, after)
    assert difference == 0.5 and low < 0.5 < high
    with pytest.raises(ValueError, match=r"different questions \(1 of 4 only in the first, 0 of 3 .*, e\.g\. d\)"):
        run_difference(before, after[1:])


def test_the_benchmarks_verdict_counts_questions_with_an_unstable_gold_too():
    rows = [row("a", "equivalent", official=True), row("b", "executable", official=False, unstable="limit_ties")]
    found = summarize(rows)
    assert (found["n"], found["equivalent"]) == (1, 1.0)
    assert (found["official_n"], found["official"], found["intervals"]["official"]) == (2, 0.5, wilson(1, 2))
    assert run_difference(rows, [row("a", "invalid", official=False), rows[1]], "official")[0] == -0.5
