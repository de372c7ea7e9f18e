"""Tiers and rewards: what no answer can earn, what the group may change, and how errors are told apart."""

import os
import pickle
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sqale_grpo.env.sandbox import Limits, Sandbox, WorkerPool
from sqale_grpo.reward import GoldError, score_candidate, score_group, with_agreement
from sqale_grpo.reward.gold import GoldResults, gold_results
from sqale_grpo.reward.score import BEST_WRONG, STEP, executable_reward
from tests.reward.conftest import SHOP, build

JOIN = "customer c JOIN orders o ON o.customer_id = c.id"
GOLDS = [
    "SELECT name FROM customer",
    "SELECT name FROM customer ORDER BY name DESC",
    f"SELECT c.name, sum(o.total) FROM {JOIN} GROUP BY c.id",
    "SELECT city, count(*) FROM customer GROUP BY city ORDER BY 2",
    "SELECT name FROM customer WHERE city = 'Paris'",
    "SELECT avg(total) FROM orders",
]
ANSWERS = [
    *GOLDS,
    None,
    "",
    "SELECT name FROM customer ORDER BY name",
    "SELECT name FROM customer WHERE id < 3",
    f"SELECT c.name, total(o.total) FROM {JOIN} GROUP BY c.id ORDER BY 2 DESC",
    f"SELECT c.name FROM {JOIN}",
    "SELECT sum(total) / count(*) FROM orders",
    "SELECT 13.875",
    "SELECT 13.8751",
    "SELECT * FROM customer",
    "SELECT nothing FROM customer",
    "SELECT name FROM customer WHERE",
    "DELETE FROM customer",
    "SELECT name FROM customer; SELECT 1",
]


@dataclass(frozen=True)
class Question:
    gold_sql: str
    question_id: str = "q1"


@pytest.mark.full
@pytest.mark.parametrize(
    ("sql", "tier", "error"),
    [
        ("SELECT name FROM customer;", "equivalent", None),
        (";; SELECT name FROM customer ; -- done", "equivalent", None),
        ("SELECT name FROM buyer", "executable", None),
        ("SELECT nme FROM customer", "parsable", "schema"),
        ("SELECT name FROM clients", "parsable", "schema"),
        ("DROP TABLE customer", "parsable", "denied"),
        ("EXPLAIN SELECT name FROM customer", "parsable", "denied"),
        ("/* ; */ pragma table_info(customer)", "parsable", "denied"),
        ("PRAGMA (", "invalid", "syntax"),
        ("EXPLAIN PRAGMA query_only = OFF", "parsable", "denied"),
        ("EXPLAIN EXPLAIN SELECT 1", "invalid", "syntax"),
        ("SELECT 1; SELECT 2", "parsable", "other"),
        ("SELECT x FROM nowhere; SELEC", "invalid", "syntax"),
        ("CREATE TABLE customer(a,,b)", "invalid", "syntax"),
        ("SELECT ?", "parsable", "other"),
        ("SELECT abs(-9223372036854775808)", "parsable", "other"),
        ("SELECT zeroblob(2000000)", "parsable", "memory"),
        ("SELECT a.id FROM item a, item b, item c, item d, item e, item f, item g", "parsable", "schema"),
        ("SELECT a.line FROM item a, item b, item c, item d, item e, item f, item g", "parsable", "rows"),
        ("WITH n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n", "parsable", "timeout"),
        ("-- nothing", "invalid", "syntax"),
        ("SELECT '\ud800'", "invalid", "syntax"),
        ("SELECT 1\0", "invalid", "syntax"),
        (None, "invalid", None),
    ],
)
def test_tiers_and_error_kinds(shop, shop_file, sql, tier, error):
    outcome = score_candidate("SELECT name FROM customer", shop_file, sql, shop)
    assert (outcome.tier, outcome.error) == (tier, error), outcome.message
    assert (outcome.message is None) == (tier == "equivalent")
    assert (outcome.f1 is None) == (outcome.digest is None) == (tier in ("parsable", "invalid"))


@pytest.mark.parametrize("gold", GOLDS)
def test_a_group(shop, shop_file, gold):
    """What holds for every answer, whatever its group."""
    outcomes = score_group(Question(gold), shop_file, ANSWERS, shop)
    for sql, outcome in zip(ANSWERS, outcomes, strict=True):
        alone = score_candidate(gold, shop_file, sql, shop)
        assert replace(outcome, agrees=False, reward=0.0) == replace(alone, reward=0.0)
        gain = outcome.reward - alone.reward
        assert gain == pytest.approx(0.1 if outcome.agrees and outcome.tier == "executable" else 0.0, abs=1e-6)
        assert (outcome.reward == 3.0) == (outcome.tier == "equivalent")
        assert outcome.tier == "equivalent" or outcome.reward <= 2.1
        assert outcome.f1 is None or 0 <= outcome.f1 <= 1
    assert outcomes[ANSWERS.index(gold)].tier == "equivalent"


group_members = st.lists(st.sampled_from(ANSWERS), min_size=1, max_size=8)


@pytest.mark.full
@given(st.sampled_from(GOLDS), group_members, group_members, st.randoms(use_true_random=False))
def test_other_members_change_nothing_but_agreement(shop, shop_file, gold, members, more, chance):
    small = score_group(Question(gold), shop_file, members, shop)
    large = score_group(Question(gold), shop_file, members + more, shop)[: len(members)]
    assert [replace(a, agrees=False, reward=0.0) for a in small] == [
        replace(b, agrees=False, reward=0.0) for b in large
    ]
    order = chance.sample(range(len(members)), len(members))
    mixed = score_group(Question(gold), shop_file, [members[index] for index in order], shop)
    assert mixed == [small[index] for index in order]


@given(st.sampled_from(GOLDS), group_members)
def test_agreement_of_a_group_scored_in_parts(shop, shop_file, gold, members):
    """As over processes: every candidate alone, pickled, and put together."""
    alone = [pickle.loads(pickle.dumps(score_candidate(gold, shop_file, sql, shop))) for sql in members]
    assert with_agreement(alone) == score_group(Question(gold), shop_file, members, shop)
    assert with_agreement(with_agreement(alone)) == with_agreement(alone)


def test_who_agrees(shop, shop_file):
    def agreeing(*answers):
        return [o.agrees for o in score_group(Question("SELECT 0"), shop_file, answers, shop)]

    assert agreeing("SELECT 1") == [False]
    assert agreeing("SELECT 1", "SELECT 2") == [False, False]
    assert agreeing("SELECT 1", "SELECT 1.0", "SELECT 2") == [True, True, False]
    assert agreeing("SELECT 1", "SELECT 2", "SELECT 1", "SELECT 2") == [True] * 4
    assert agreeing("SELEC", "SELEC", "SELECT 1") == [False] * 3
    assert agreeing("SELECT 0", "SELECT 0", "SELECT 1") == [True, True, False]
    # Equal in a chain: the ends differ by more than the tolerance, but one result lies between them.
    assert agreeing("SELECT 1.0", "SELECT 1.0000000016", "SELECT 1.0000000008", "SELECT 2") == [True, True, True, False]


@given(st.floats(0, 1), st.floats(0, 1), st.booleans())
def test_rewards_are_exact_and_below_the_top(f1, share, agrees):
    reward = executable_reward(f1, share, agrees)
    assert reward / STEP == int(reward / STEP)
    assert 1.0 <= reward <= BEST_WRONG <= 2.1
    assert reward == pytest.approx(1 + 0.9 * f1 + 0.1 * share + 0.1 * agrees, rel=0, abs=6e-7)


@pytest.mark.full
def test_equal_rewards_are_equal_in_float32():
    import torch

    formula = [1 + 0.9 * f1 / 97 + 0.1 * share for f1 in range(98) for share in (0, 1 / 3, 1)]
    rewards = [executable_reward(f1 / 97, share, False) for f1 in range(98) for share in (0, 1 / 3, 1)]
    assert torch.tensor(rewards).tolist() == rewards == pytest.approx(formula, rel=0, abs=5e-7)


def test_a_gold_query_that_fails_names_question_and_database(shop, shop_file):
    with pytest.raises(GoldError, match=r"gold query of question q1 does not run on .*shop.sqlite \(schema: no such"):
        score_group(Question("SELECT x FROM customer"), shop_file, ["SELECT 1"], shop)
    with pytest.raises(GoldError, match="the gold query does not run"):
        score_candidate("SELECT x FROM customer", shop_file, "SELECT 1", shop)
    error = pickle.loads(pickle.dumps(gold_error(shop, shop_file)))
    assert "question q9" in str(error)


def gold_error(shop, shop_file):
    with pytest.raises(GoldError) as raised:
        score_candidate("SELECT x", shop_file, "SELECT 1", shop, question_id="q9")
    return raised.value


def test_without_a_sandbox_one_is_opened_for_the_call(shop_file):
    assert score_candidate("SELECT 1", shop_file, "SELECT 1").tier == "equivalent"
    assert [o.tier for o in score_group(Question("SELECT 1"), shop_file, ["SELECT 1", "SELECT"])] == [
        "equivalent",
        "invalid",
    ]
    with pytest.raises(FileNotFoundError, match="no database file at"):
        score_candidate("SELECT 1", shop_file.with_name("none.sqlite"), "SELECT 1")


def test_the_gold_query_runs_once_for_all_who_ask(shop_file):
    slow = "WITH n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 300000) SELECT random() FROM n LIMIT 1"
    results = GoldResults()
    barrier = threading.Barrier(6)

    def ask(_):
        barrier.wait()
        return results.get(slow, shop_file, Limits())

    with ThreadPoolExecutor(6) as threads:
        golds = list(threads.map(ask, range(6)))
    assert len({gold.result.rows[0] for gold in golds}) == 1
    assert results.get(slow, shop_file, Limits()) is golds[0]
    assert results.get(slow, shop_file, Limits(seconds=9.0)) is not golds[0]


@pytest.mark.full
def test_a_forked_child_does_not_wait_for_its_parents_threads(shop_file):
    """A result that a thread of the parent was computing at the fork never comes in the child."""
    slow = "WITH n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 4000000) SELECT count(*) FROM n"
    thread = threading.Thread(target=gold_results.get, args=(slow, shop_file, Limits(seconds=30.0)))
    thread.start()
    time.sleep(0.2)
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        answer = gold_results.get(slow, shop_file, Limits(seconds=30.0)).result.rows
        os._exit(0 if answer == [(4_000_000,)] else 1)
    assert os.waitpid(child, 0)[1] == 0
    thread.join()


def test_a_failed_gold_query_is_asked_again(shop_file):
    results = GoldResults()
    slow = "WITH n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000) SELECT count(*) FROM n"
    with pytest.raises(GoldError, match="timeout"):
        results.get(slow, shop_file, Limits(seconds=0.001))
    assert results.get(slow, shop_file, Limits(seconds=9.0)).result.rows == [(20_000,)]


def test_gold_results_are_forgotten_in_bounds_and_when_the_file_changes(tmp_path):
    database = build(tmp_path / "d.sqlite", "CREATE TABLE t(a); INSERT INTO t VALUES ('x')")
    results = GoldResults(entries=2, size=100_000)
    first = results.get("SELECT random()", database, Limits())
    assert results.get("SELECT random()", database, Limits()) is first
    for number in range(2):
        results.get(f"SELECT {number}", database, Limits())
    assert results.get("SELECT random()", database, Limits()) is not first
    kept = results.get("SELECT random() + 1", database, Limits())
    results.get("SELECT zeroblob(90000), zeroblob(90000)", database, Limits())
    assert results.get("SELECT random() + 1", database, Limits()) is not kept
    database.unlink()
    build(database, "CREATE TABLE t(a); INSERT INTO t VALUES ('y')")
    assert results.get("SELECT a FROM t", database, Limits()).result.rows == [("y",)]


def test_the_gold_query_has_a_connection_of_its_own(tmp_path, monkeypatch):
    """The sandbox lets a query leave nothing behind; were there a way, it would not reach the gold query."""
    asked = []
    run_many = WorkerPool.run_many
    monkeypatch.setattr(
        WorkerPool,
        "run_many",
        lambda pool, client, queries, *more: (
            asked.extend((sql, client.key) for sql, *_ in queries) or run_many(pool, client, queries, *more)
        ),
    )
    database = build(tmp_path / "d.sqlite", SHOP)
    gold, answer = "SELECT name FROM customer LIMIT 3", "VALUES ('Ana'), ('Bo'), ('Cy')"
    with Sandbox(database) as sandbox:
        for sql in (
            "CREATE TEMP VIEW customer AS SELECT 'Ana' AS name",
            "PRAGMA reverse_unordered_selects = 1",
            answer,
        ):
            outcome = score_candidate(gold, database, sql, sandbox)
    assert outcome.tier == "equivalent"
    keys = dict(asked)
    assert [sql for sql, _ in asked].count(gold) == 1 and keys[gold] not in {keys[sql] for sql in keys if sql != gold}
