"""The official verdicts, where they are looser or stricter than ours."""

import json
import math
import re
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sqale_grpo.env.sandbox import Limits, Sandbox, SqlError
from sqale_grpo.reward import bird_match, bird_verdict, compare, ehrsql_match, ehrsql_verdict, score_candidate
from sqale_grpo.reward.ehrsql import Answered, abstention_scores, as_executed
from sqale_grpo.reward.official import bird_decision
from tests.helpers.official import NONE, ONE, PAIRS, SETUP
from tests.reward.conftest import build, result

ROOT = Path(__file__).resolve().parent.parent.parent

NUMBERED = [(index,) for index in range(300)]


@pytest.mark.parametrize(
    ("prediction", "gold", "bird", "ehrsql", "ours"),
    [
        ([(1,), (2,)], [(2,), (1,)], True, True, True),
        ([(1,), (1,)], [(1,)], True, False, False),
        ([(1,)], [(1.0,)], True, False, True),
        ([(0.1 + 0.2,)], [(0.3,)], False, False, True),
        ([("1",)], [(1,)], False, False, False),
        ([("a", 1)], [(1, "a")], False, False, False),
        ([], [], True, True, True),
        ([], [(None,)], False, False, False),
        (NUMBERED[:100] + [("x",)], NUMBERED[:100] + [("y",)], False, True, False),
        (NUMBERED, NUMBERED[::-1], True, False, True),
        ([(math.inf,)], [(math.inf,)], True, True, True),
    ],
)
def test_verdicts_on_results(prediction, gold, bird, ehrsql, ours):
    assert bird_match(prediction, gold) is bird
    assert ehrsql_match(prediction, gold) is ehrsql
    assert compare(result(prediction), result(gold), False).equivalent is ours


cells = st.one_of(st.none(), st.integers(-3, 3), st.sampled_from([0.5, 1.0]), st.text("ab", max_size=1))


@given(st.lists(st.tuples(cells, cells), max_size=6), st.lists(st.tuples(cells, cells), max_size=6))
def test_both_are_as_in_the_published_scripts(prediction, gold):
    """The scripts' own lines, on small results."""
    assert bird_match(prediction, gold) == (set(prediction) == set(gold))
    as_published = [str(sorted([str(row) for row in rows[:100]])) for rows in (prediction, gold)]
    assert ehrsql_match(prediction, gold) == (as_published[0] == as_published[1])


def test_verdicts_on_queries(shop, shop_file):
    gold, repeated = "SELECT DISTINCT city FROM customer", "SELECT city FROM customer"
    assert bird_verdict(gold, shop_file, repeated, shop)
    assert not ehrsql_verdict(gold, shop_file, repeated, shop)
    assert score_candidate(gold, shop_file, repeated, shop).tier == "executable"
    for verdict in (bird_verdict, ehrsql_verdict):
        assert verdict(gold, shop_file, gold)
        assert not verdict(gold, shop_file, None, shop)
        assert not verdict("SELECT nothing", shop_file, gold, shop)
        assert not verdict(gold, shop_file, "SELECT nothing FROM customer", shop)


def results_of_cases(folder):
    """(rows, gold rows, do they match) of every line of the case file whose answer runs."""
    cases = [json.loads(line) for line in (ROOT / "tests" / "cases" / "reward.jsonl").open(encoding="utf-8")]
    scripts = sorted({case["setup_sql"] for case in cases})
    files = {script: build(folder / f"{number}.sqlite", script) for number, script in enumerate(scripts)}
    for case in cases:
        if case["expect"]["tier"] in ("equivalent", "executable"):
            database = files[case["setup_sql"]]
            with Sandbox(database, Limits(seconds=1.0)) as sandbox, suppress(SqlError):
                rows, gold = sandbox.execute(case["pred_sql"]).rows, sandbox.execute(case["gold_sql"]).rows
                yield rows, gold, case["expect"]["tier"] == "equivalent"


def test_the_figures_of_the_documentation(tmp_path):
    results = list(results_of_cases(tmp_path))
    page = (ROOT / "docs" / "reward.md").read_text(encoding="utf-8")
    assert f"On the {len(results)} lines" in page
    hashed = lambda rows, gold: Counter(rows) == Counter(gold)  # noqa: E731
    for match, name in ((bird_match, "BIRD's (sets)"), (ehrsql_match, "EHRSQL's"), (hashed, "a multiset by hashing")):
        wrong = Counter(match(rows, gold) for rows, gold, same in results if match(rows, gold) != same)
        assert re.search(rf"^\| {re.escape(name)}[^|]* \| {wrong[True]} \| {wrong[False]} \|$", page, re.MULTILINE)


@pytest.fixture(scope="module")
def odd_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("odd") / "odd.sqlite", SETUP)


@pytest.mark.parametrize("pair", PAIRS, ids=[pair.why for pair in PAIRS])
def test_hard_pairs_have_the_verdicts_of_the_benchmarks_scripts(odd_file, pair):
    assert bird_verdict(pair.gold, odd_file, pair.answer) is pair.bird
    assert ehrsql_verdict(pair.gold, odd_file, pair.answer) is pair.ehrsql


def test_what_would_write_is_wrong_and_changes_nothing(odd_file):
    before = odd_file.read_bytes()
    for answer in ("DELETE FROM prescriptions", "PRAGMA user_version = 3", "DROP TABLE latin"):
        assert not bird_verdict(NONE, odd_file, answer)
        assert not ehrsql_verdict(NONE, odd_file, answer)
    assert odd_file.read_bytes() == before


def test_bird_gives_both_queries_one_time():
    one = result([(1,)])
    assert bird_decision([one, one], 0.0)
    assert not bird_decision([one, one], -0.001)
    assert not bird_decision([one], 20.0) and not bird_decision([one, SqlError("timeout", "too long")], 20.0)


def test_an_answer_without_end_is_wrong_when_its_time_is_over(odd_file):
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n"
    for verdict in (bird_verdict, ehrsql_verdict):
        assert not verdict(ONE, odd_file, endless, seconds=0.05)
        assert not verdict(endless, odd_file, ONE, seconds=0.05)


@pytest.mark.parametrize(
    ("query", "executed"),
    [
        ("SELECT my_Current_Time", "select my_'2105-12-31 23:59:00'"),
        ("a > heart_rate_lower AND a < heart_rate_upper", "a > 60.0 and a < 100.0"),
        ("a > pulse_lower and a < pulse_upper", "a > pulse_lower and a < pulse_upper"),
        ("a>sao2_lower and a < sao2_upper", "a>sao2_lower and a < sao2_upper"),
        ("a = '' and b < = 'NOW' and '%Y%j'", "a = ' and b <= '2105-12-31 23:59:00' and '%Y%J'"),
    ],
)
def test_ehrsqls_script_rewrites_text_and_knows_no_quotes(query, executed):
    assert as_executed(query) == executed


def test_abstaining_is_scored_as_ehrsql_publishes_it():
    right, wrong, silent = Answered(True, True, True), Answered(True, True, False), Answered(True, False, False)
    impossible, guessed = Answered(False, False, False), Answered(False, True, False)
    scores = abstention_scores([right, right, wrong, silent, impossible, guessed])
    # Four were answered, three of them answerable, two of them right; four could be answered.
    assert scores["precision_ans"] == scores["recall_ans"] == scores["f1_ans"] == 0.75
    assert scores["precision_exec"] == scores["recall_exec"] == scores["f1_exec"] == 0.5
    assert set(abstention_scores([impossible]).values()) == {0.0}
