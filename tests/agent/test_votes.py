"""Votes: equal results agree however their SQL is written, and two different ones say how."""

import io
import json
from pathlib import Path
from threading import Event

import pytest

from sqale_grpo.agent.agent import AgentQuestion, AgentTurn, SQaLeAgent
from sqale_grpo.agent.show import Printer, to_json
from sqale_grpo.agent.votes import count_votes, what_differs
from sqale_grpo.env.episode import Episode
from sqale_grpo.env.limits import QueryResult
from sqale_grpo.env.sandbox import Sandbox
from sqale_grpo.rollout.tokens import EpisodeTokens

COUNT, CITIES = "SELECT count(*) FROM shops", "SELECT count(DISTINCT city) FROM shops"


def result(columns: str, *rows: tuple) -> QueryResult:
    return QueryResult(tuple(columns), list(rows), False, frozenset())


def scripted(answers: list[str | None]):
    """A policy that submits the answers in turn, the first after it looked at the tables; None: nothing, to the end."""

    def generate(episodes, keys, sampling, pool):
        for place, episode in enumerate(episodes):
            sql = answers[place % len(answers)]
            if place == 0:
                episode.step('{"tool": "list_tables", "args": {}}')
            while episode.finished is None:
                call = {"tool": "submit_sql", "args": {"sql": sql}}
                episode.step(json.dumps(call) if sql is not None else "")
        assert len(set(keys)) == len(episodes)
        return [EpisodeTokens([place]) for place, _ in enumerate(episodes)]

    return generate


def asked(shop: Path, answers: list[str | None], sure: float = 0.5) -> dict:
    return SQaLeAgent(scripted(answers)).run("How many?", shop, candidates=len(answers), sure=sure)


def test_the_most_frequent_result_is_the_answer_of_its_first_candidate(shop):
    found = asked(shop, [CITIES, COUNT, "SELECT 3.0", "SELECT 'x' FROM gone", None, "SELECT count(id) FROM sales"])
    assert (found["sql"], found["rows"], found["is_sure"]) == (COUNT, [(3,)], True)
    assert (found["candidates"], found["agreement"], found["threshold"]) == (6, 0.5, 0.5)
    assert [(vote["count"], vote["sql"], vote["rows"]) for vote in found["votes"]] == [
        (3, COUNT, [(3,)]),
        (1, CITIES, [(2,)]),
    ]
    assert found["difference"] == ("1 of 1 row only in the first, e.g. (3); 1 of 1 row only in the second, e.g. (2)")
    assert found["prompt_ids"] == [1], "tokens and trace are those of the candidate that gave it"


def test_below_the_threshold_there_is_no_answer(shop):
    found = asked(shop, [COUNT, CITIES, "SELECT 3", "SELECT city FROM shops"], sure=0.6)
    assert (found["sql"], found["rows"], found["is_sure"], found["agreement"]) == (None, [], False, 0.5)
    assert [vote["rows"] for vote in found["votes"]] == [[(3,)], [(2,)]] and found["difference"]


def shown(result: dict) -> list[str]:
    out = io.StringIO()
    Printer(out, colour=False).answer(result)
    return out.getvalue().splitlines()[2:]


def test_what_is_shown_says_how_many_agree(shop):
    answers = [COUNT, CITIES, None, COUNT, None, CITIES, None, "SELECT gone"]
    assert shown(asked(shop, answers, sure=0.25))[:2] == [
        "Sure     2 of 8 candidates agree (25%; 25% must)",
        f"SQL      {COUNT}",
    ]
    unsure = asked(shop, answers)
    lines = shown(unsure)
    assert lines[0] == "Not sure 2 of 8 candidates agree (25%; 50% must); what they gave most often:"
    assert [line for line in lines if line.startswith("2 of 8")] == [f"2 of 8   {COUNT}", f"2 of 8   {CITIES}"]
    assert lines[-1] == "Differ   1 of 1 row only in the first, e.g. (3); 1 of 1 row only in the second, e.g. (2)"
    assert not any(line.startswith("SQL") for line in lines)
    assert [vote["rows"] for vote in json.loads(to_json(unsure))["votes"]] == [[[3]], [[2]]]
    assert shown(asked(shop, [None, None])) == ["Not sure no answer of 2 candidates runs"]


def test_candidates_of_which_none_runs_are_not_sure(shop):
    found = asked(shop, [None, "SELECT gone"], sure=0.0)
    assert (found["sql"], found["is_sure"], found["agreement"], found["votes"]) == (None, False, 0.0, [])


def test_one_candidate_has_no_vote(shop):
    found = asked(shop, [COUNT])
    assert (found["sql"], found["candidates"], found["is_sure"], found["agreement"]) == (COUNT, 1, None, None)


@pytest.mark.parametrize(("second", "classes"), [("DESC", 2), ("ASC", 1)])
def test_order_counts_where_most_candidates_order_their_rows(shop, second, classes):
    orders = [f"SELECT id FROM shops ORDER BY id {way}" for way in ("ASC", second)]
    with Sandbox(shop) as sandbox:
        assert len(count_votes([*orders, "SELECT id FROM shops"], sandbox).found) == classes
        assert (
            len(
                count_votes(
                    [orders[0], "SELECT id FROM shops ORDER BY city, id", *["SELECT id FROM shops"] * 2], sandbox
                ).found
            )
            == 1
        )


def test_what_differs_is_told_with_a_row_of_each():
    pair = result("ab", (1, "x"), (2, "y"))
    assert what_differs(pair, result("a", (1,)), False) == "the first has 2 columns (a, b), the second 1 (a)"
    assert what_differs(pair, result("ab", (1, "x")), False) == "1 of 2 rows only in the first, e.g. (2, 'y')"
    other = what_differs(pair, result("ab", (2, "y"), (1, "x")), True)
    assert other == "the same rows in another order: row 1 is (1, 'x') in the first, (2, 'y') in the second"


def test_turns_come_as_they_end_and_the_answer_last(shop):
    events = list(SQaLeAgent(scripted([COUNT, CITIES])).stream(AgentQuestion("How many?", shop), 2))
    assert [(each.candidate, each.number) for each in events[:-1]] == [(0, 1), (0, 2), (1, 1)]
    assert all(isinstance(each, AgentTurn) for each in events[:-1])
    assert events[-1]["candidates"] == 2 and events[-1]["is_sure"]


def test_an_episode_of_one_who_leaves_goes_no_further(shop):
    """The next turn of a stream that was closed does not come to its end."""
    steps: list[Episode] = []

    def generate(episodes, keys, sampling, pool):
        (episode,) = episodes
        episode.step("one")
        assert closed.wait(60)
        try:
            episode.step("two")
            episode.step("three")
        finally:
            steps.append(episode)
            ended.set()

    closed, ended = Event(), Event()
    stream = SQaLeAgent(generate).stream(AgentQuestion("How many?", shop))
    assert next(stream).turn.completion == "one"
    stream.close()
    closed.set()
    assert ended.wait(60) and len(steps[0].turns) == 2


def test_what_keeps_an_answer_from_coming_is_raised_where_it_is_read(tmp_path):
    with pytest.raises(FileNotFoundError, match="gone.sqlite"):
        list(SQaLeAgent(scripted([COUNT])).stream(AgentQuestion("How many?", tmp_path / "gone.sqlite")))
