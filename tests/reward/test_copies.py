"""Answers on counter-databases: luck falls, what is right stays, and a failure of the machine is neither."""

import os
import signal

import pytest

from sqale_grpo.env.builders import Builders
from sqale_grpo.env.sandbox import Limits, Sandbox, WorkerPool
from sqale_grpo.reward import Copies, regardless_of_copies, score_candidate, score_group
from sqale_grpo.reward.copy_builders import copy_builders
from sqale_grpo.sampler import open_episode_database
from tests.helpers.corpora import database
from tests.reward.test_score import Question

GOLD = "SELECT count(*) FROM customer WHERE city = 'Bonn'"


@pytest.fixture
def copies(shop, tmp_path):
    """Opens a gold query's copies on the shop."""
    opened = []

    def opening(sql, tables=("customer",), seeds=(0, 1)):
        opened.append(Copies(sql, tables, seeds, shop, tmp_path))
        return opened[-1]

    yield opening
    for each in opened:
        each.close()
    assert not list(tmp_path.iterdir()), "their files are gone"


def test_a_constant_falls(copies, shop, shop_file):
    outcome = score_candidate(GOLD, shop_file, "SELECT 0", shop, copies=copies(GOLD))
    assert (outcome.tier, outcome.f1, outcome.reward, outcome.lucky) == ("executable", 0.0, 1.0, True)
    assert outcome.copy in (0, 1)
    assert outcome.message.startswith(
        f"right by luck: on copy {outcome.copy} 1 of 1 row not in the gold result, e.g. (0)"
    )
    alone = regardless_of_copies(outcome)
    assert (alone.tier, alone.reward, alone.f1, alone.copy) == ("equivalent", 3.0, 1.0, outcome.copy)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT count(id) FROM customer WHERE 'Bonn' = city",
        "SELECT sum(city = 'Bonn') FROM customer",
        "SELECT count(*) FROM customer c LEFT JOIN region r ON c.region = r.id WHERE city = 'Bonn'",
    ],
)
def test_other_ways_to_say_it_are_right(copies, shop, shop_file, sql):
    outcome = score_candidate(GOLD, shop_file, sql, shop, copies=copies(GOLD))
    assert (outcome.tier, outcome.reward, outcome.lucky) == ("equivalent", 3.0, False)


def test_what_is_wrong_on_the_database_is_not_lucky(copies, shop, shop_file):
    outcome = score_candidate(GOLD, shop_file, "SELECT 1", shop, copies=copies(GOLD))
    assert (outcome.tier, outcome.lucky) == ("executable", False)


def test_a_query_that_fails_on_a_copy_only_falls(copies, shop, shop_file):
    sql = f"{GOLD} AND (SELECT abs(-9223372036854775807 - (count(*) > 0)) FROM customer WHERE city = 'Bonn') >= 0"
    outcome = score_candidate(GOLD, shop_file, sql, shop, copies=copies(GOLD))
    assert outcome.lucky and "does not run there" in outcome.message


def test_a_group_has_one_set_of_copies_and_agreement_is_about_the_shown_database(copies, shop, shop_file):
    answers = ["SELECT 0", GOLD, "SELECT 0", "SELECT 7"]
    outcomes = score_group(Question(GOLD), shop_file, answers, shop, copies=copies(GOLD))
    assert [each.tier for each in outcomes] == ["executable", "equivalent", "executable", "executable"]
    assert [each.agrees for each in outcomes] == [True, True, True, False]
    assert outcomes[0].reward == pytest.approx(1.1, abs=1e-6)


def test_ties_hold_on_copies(copies, shop, shop_file):
    gold = "SELECT name FROM customer ORDER BY city IS NULL"
    answer = "SELECT name FROM customer ORDER BY city IS NULL, name DESC"
    assert score_candidate(gold, shop_file, answer, shop, copies=copies(gold)).tier == "equivalent"


def test_no_copies_no_luck(copies, shop, shop_file):
    assert score_candidate(GOLD, shop_file, "SELECT 0", shop, copies=copies(GOLD, seeds=())).tier == "equivalent"
    # No copy can be made of a view: the answer counts as without.
    assert score_candidate(GOLD, shop_file, "SELECT 0", shop, copies=copies(GOLD, ("buyer",))).tier == "equivalent"


def test_copies_have_the_steps_of_the_episodes_database(shop_file, tmp_path):
    """An answer that takes too many steps on a copy is not judged by it: that does not say that it is wrong."""
    bonn = "(SELECT count(*) FROM customer WHERE city = 'Bonn') > 0"
    endless = f"WITH n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE {bonn}) SELECT count(*) - 1 FROM n"
    with (
        Sandbox(shop_file, Limits(steps=1_000_000), immutable=True) as sandbox,
        Copies(GOLD, ("customer",), (0, 1), sandbox, tmp_path) as copies,
    ):
        assert score_candidate(GOLD, shop_file, endless, sandbox, copies=copies).tier == "equivalent"
        assert score_candidate(GOLD, shop_file, "SELECT 0", sandbox, copies=copies).lucky


def test_a_copy_that_the_machine_cannot_build_leaves_the_answer_void(shop, shop_file, tmp_path):
    with Copies(GOLD, ("customer",), (0,), shop, tmp_path / "nowhere") as copies:
        outcome = score_candidate(GOLD, shop_file, GOLD, shop, copies=copies)
        assert (outcome.tier, outcome.error, outcome.lucky) == ("void", "machine", False)
        assert outcome.message == "counter-database 0 could not be built: unable to open database file"
        assert score_candidate(GOLD, shop_file, "SELECT 7", shop, copies=copies).tier == "executable", (
            "it never ran there"
        )
        (tmp_path / "nowhere").mkdir()
        assert score_candidate(GOLD, shop_file, GOLD, shop, copies=copies).tier == "equivalent", "and then it can"


def test_a_machine_that_fails_on_a_copy_leaves_the_answer_void(shop_file, tmp_path):
    with WorkerPool(workers=1) as pool, Sandbox(shop_file, None, pool, immutable=True) as sandbox:
        copies = Copies(GOLD, ("customer",), (0,), sandbox, tmp_path)
        with copies:
            assert score_candidate(GOLD, shop_file, "SELECT 0", sandbox, copies=copies).lucky
            (copy,) = tmp_path.glob("copy-*")
            copy.rename(copy.with_suffix(".away"))
            for pid in pool.pids:
                os.kill(pid, signal.SIGKILL)
            assert score_candidate(GOLD, shop_file, "SELECT 0", sandbox, copies=copies).tier == "void"
            copy.with_suffix(".away").rename(copy)
            assert score_candidate(GOLD, shop_file, "SELECT 0", sandbox, copies=copies).lucky


def test_a_builder_that_was_killed_is_replaced(copies, shop, shop_file):
    assert score_candidate(GOLD, shop_file, "SELECT 0", shop, copies=copies(GOLD)).lucky
    for worker in copy_builders.idle:
        os.kill(worker.process.pid, signal.SIGKILL)
    assert score_candidate(GOLD, shop_file, "SELECT 0", shop, copies=copies(GOLD)).lucky


def test_a_builder_that_takes_too_long_is_ended(monkeypatch, copies, shop, shop_file):
    builders = Builders("sqale_grpo.reward.copy_worker")
    monkeypatch.setattr("sqale_grpo.reward.copy_builders.copy_builders", builders)
    assert score_candidate(GOLD, shop_file, "SELECT 0", shop, copies=copies(GOLD)).lucky
    (worker,) = builders.idle
    os.kill(worker.process.pid, signal.SIGSTOP)
    monkeypatch.setattr("sqale_grpo.reward.copy_builders.BUILD_SECONDS", 0.2)
    outcome = score_candidate(GOLD, shop_file, "SELECT 0", shop, copies=copies(GOLD))
    assert outcome.tier == "void" and "it took longer than" in outcome.message
    assert worker.process.returncode == -signal.SIGKILL and not builders.idle


def test_copies_of_a_narrowed_large_database(shop_file, tmp_path):
    """A large source is not copied but overlaid by a write-ahead log, which a builder must read too."""
    with (
        open_episode_database(shop_file, ["customer", "orders"], small_bytes=0) as database,
        Sandbox(database.path, immutable=True) as sandbox,
        Copies(GOLD, ("customer",), (0,), sandbox, tmp_path) as copies,
    ):
        assert score_candidate(GOLD, database.path, "SELECT 0", sandbox, copies=copies).lucky
        assert score_candidate(GOLD, database.path, GOLD, sandbox, copies=copies).tier == "equivalent"
        both = f"{GOLD} AND id NOT IN (SELECT customer_id FROM orders WHERE total < 0)"
        assert score_candidate(GOLD, database.path, both, sandbox, copies=copies).tier == "equivalent"


def test_an_answer_that_reads_a_view_is_right_on_copies_too(tmp_path):
    path = database(
        tmp_path / "shop.sqlite",
        "CREATE TABLE sale (id INTEGER PRIMARY KEY, city TEXT, paid INTEGER);"
        + "".join(f"INSERT INTO sale VALUES ({n}, '{city}', {n % 3});" for n, city in enumerate(("Bonn", "Rome") * 9))
        + "CREATE VIEW of_bonn AS SELECT * FROM sale WHERE city = 'Bonn'; CREATE VIEW lost AS SELECT * FROM gone;",
    )
    gold = "SELECT count(*) FROM sale WHERE city = 'Bonn' AND paid = 1"
    scratch = tmp_path / "copies"
    scratch.mkdir()
    with Sandbox(path) as sandbox:
        copies = Copies(gold, ("sale",), (0, 1), sandbox, scratch)
        outcome = score_candidate(gold, path, "SELECT count(*) FROM of_bonn WHERE paid = 1", sandbox, copies=copies)
        assert (outcome.tier, outcome.lucky) == ("equivalent", False)
        constant = score_candidate(gold, path, "SELECT 3 FROM of_bonn LIMIT 1", sandbox, copies=copies)
        assert (constant.tier, constant.lucky) == ("executable", True)
        copies.close()
