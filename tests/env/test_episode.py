"""Episode: budget, gate, error cap, final turn and every way to end."""

import dataclasses
import json

import pytest

from sqale_grpo.env.episode import CallRecord, Episode, EpisodeLimits, Finished, Observation
from sqale_grpo.env.sandbox import Limits, Sandbox

WORKS = "SELECT id FROM customers WHERE id < 3"
FAILS = "SELECT nope FROM customers"


def call(tool: str, **args: object) -> str:
    return json.dumps({"tool": tool, "args": args})


LOOK = call("list_tables")


def play(episode: Episode, *completions: str) -> Observation | Finished:
    for completion in completions:
        answer = episode.step(completion)
    return answer


def run(sql: str) -> str:
    return call("run_query", sql=sql)


def submit(sql: str) -> str:
    return call("submit_sql", sql=sql)


def errors(episode: Episode) -> list[str | None]:
    return [record.error for turn in episode.turns for record in turn.calls]


def test_prompt(shop):
    system, user = Episode("Who?", shop, EpisodeLimits(tool_turns=4)).prompt()
    assert (system["role"], user["role"]) == ("system", "user")
    assert "you start with 4" in system["content"] and user["content"].endswith("Question: Who?")
    hinted = Episode("Who {evidence}?", shop, evidence="names {question}").prompt()[1]["content"]
    assert hinted.endswith("Question: Who {evidence}?\nHint: names {question}")


def test_one_call(shop):
    answer = Episode("?", shop).step(
        "<think>look</think>\n" + call("join_path", table_a="returns", table_b="customers")
    )
    assert answer == Observation(
        "Tool result:\nreturns → order items → customers\n\n[5 tool turns left before you must answer]", False
    )


def test_several_calls_are_answered_in_order_and_numbered(shop):
    episode = Episode("?", shop)
    answer = episode.step(run(WORKS) + LOOK + '{"tool": "nope"}' + run(FAILS))
    parts = answer.text.split("\n(")
    assert parts[0] == "Tool result:"
    assert [part.split("\n")[0] for part in parts[1:]] == ["1/4)", "2/4)", "3/4)", "4/4)"]
    assert [part.split("\n")[1][:20] for part in parts[1:]] == [
        "id", "customers, order ite", "Error: unknown tool ", "Error: no such colum",
    ]  # fmt: skip
    assert errors(episode) == [None, None, "unknown_tool", "schema"]


def test_the_budget_counts_turns_not_calls(shop):
    episode = Episode("?", shop)
    lines = [episode.step(LOOK * (n + 1)).text.rsplit("\n", 1)[1] for n in range(5)]
    assert lines == [f"[{n} tool turns left before you must answer]" for n in (5, 4, 3, 2)] + [
        "[1 tool turn left before you must answer]"
    ]
    last = episode.step("no call at all")
    assert last.final and "Exploration is over" in last.text and "tool turn" not in last.text
    assert len(episode.turns) == 6 and episode.finished is None


def test_submission(shop):
    episode = Episode("?", shop)
    assert play(episode, LOOK, submit(FAILS)) == Finished(FAILS, "submit_sql") == episode.finished
    assert [turn.observation is None for turn in episode.turns] == [False, True]


def test_calls_before_a_submission_are_run_and_those_after_it_are_not(shop):
    episode = Episode("?", shop)
    answer = episode.step(run(WORKS) + '{"tool": "submit_sql"}' + submit("SELECT 1") + run(FAILS) + submit("SELECT 2"))
    assert answer == Finished("SELECT 1", "submit_sql")
    assert [(record.tool, record.error) for record in episode.turns[0].calls] == [
        ("run_query", None), ("", "bad_args"), ("submit_sql", None),
    ]  # fmt: skip


def test_a_closed_gate_refuses_and_the_turn_is_spent(shop):
    episode = Episode("?", shop, gated=True)
    refused = episode.step(submit(WORKS) + run(WORKS))
    assert refused.text == (
        "Tool result:\nNot accepted yet: run exactly this query with run_query first, then submit it.\n\n"
        "[5 tool turns left before you must answer]"
    )
    assert errors(episode) == ["gate"] and episode.last_working_query is None
    # Neither another query nor one that failed opens it.
    assert isinstance(play(episode, run(FAILS), submit(FAILS)), Observation)
    assert isinstance(play(episode, run(WORKS), submit("SELECT id FROM customers")), Observation)
    spaced = WORKS.replace(" ", "\n ") + " ;"
    assert episode.step(submit(spaced)) == Finished(spaced, "submit_sql")
    episode = Episode("?", shop, gated=True)
    assert play(episode, run(spaced), submit(WORKS)) == Finished(WORKS, "submit_sql")


def test_the_gate_opens_within_one_turn_and_for_earlier_queries(shop):
    assert Episode("?", shop, gated=True).step(run(WORKS) + submit(WORKS)) == Finished(WORKS, "submit_sql")
    episode = Episode("?", shop, gated=True)
    assert play(episode, run(WORKS), run("SELECT 2"), submit(WORKS)) == Finished(WORKS, "submit_sql")


@pytest.mark.parametrize("answer", [submit("SELECT 1"), "SELECT 1"])
def test_the_gate_does_not_apply_to_the_final_turn(shop, answer):
    episode = Episode("?", shop, EpisodeLimits(tool_turns=1), gated=True)
    assert play(episode, LOOK, answer) == Finished("SELECT 1", "final_turn")


def test_four_failures_in_a_row_lead_to_the_final_turn(shop):
    episode = Episode("?", shop)
    assert not play(episode, run(FAILS), run(FAILS) + LOOK + run(FAILS)).final
    answer = episode.step(run(FAILS))
    assert answer.final and "Exploration is over" in answer.text
    assert episode.step("SELECT 1") == Finished("SELECT 1", "final_turn")


def test_a_success_sets_the_count_to_zero(shop):
    episode = Episode("?", shop)
    assert not play(episode, run(FAILS) * 3 + run(WORKS) + run(FAILS) * 3).final
    # Calls that could not be read are no failed queries.
    assert not play(episode, '{"tool": "run_query"}' * 4).final
    assert episode.step(run(FAILS)).final


def test_the_cap_stops_a_turn_in_its_middle(shop):
    episode = Episode("?", shop)
    answer = episode.step(run(FAILS) * 4 + run(WORKS) + call("list_tables"))
    assert answer.final and episode.last_working_query is None
    assert [record.error for record in episode.turns[0].calls] == ["schema"] * 4 + ["not_run"]
    assert episode.turns[0].calls[-1].result == "Error: not run: 4 queries in a row failed"


def test_a_turn_has_a_bound_of_calls_and_of_steps(shop):
    counting = "WITH c(x) AS (VALUES(1) UNION ALL SELECT x + 1 FROM c WHERE x < 100000) SELECT count(*) FROM c"
    episode = Episode("?", shop, EpisodeLimits(turn_calls=3, turn_steps=1_000_000))
    episode.step(run(WORKS) * 5)
    assert [record.error for record in episode.turns[0].calls] == [None] * 3 + ["not_run"]
    episode.step(run(counting) * 3)
    assert [record.error for record in episode.turns[1].calls] == [None, "not_run"]
    assert "the queries of this turn took too many steps" in episode.turns[1].calls[1].result


def test_a_turn_has_a_bound_of_bytes(shop):
    """Previews are cut, but 1,000 columns of five rows are 0.4 MB each time."""
    wide = f"SELECT {', '.join(['hex(zeroblob(60))'] * 1000)} FROM (VALUES(1), (2), (3), (4), (5))"
    with Sandbox(shop.database, Limits(result_mb=1)) as sandbox:
        episode = Episode("?", sandbox)
        episode.step(run(wide) * 5)
        assert [record.error for record in episode.turns[0].calls] == [None] * 3 + ["not_run"]
        assert "the queries of this turn returned too much" in episode.turns[0].calls[3].result
        episode.step(run(wide))
        assert episode.turns[1].calls[0].error is None


def test_an_answer_after_the_cap_still_counts(shop):
    episode = Episode("?", shop)
    assert episode.step(run(FAILS) * 5 + call("submit_sql", sql=WORKS)) == Finished(WORKS, "submit_sql")


def final_turn(shop: Sandbox, *before: str) -> tuple[Episode, Observation]:
    episode = Episode("?", shop, EpisodeLimits(tool_turns=max(1, len(before))))
    answer = play(episode, *(before or (LOOK,)))
    assert isinstance(answer, Observation) and answer.final
    return episode, answer


def test_the_final_turn_shows_the_last_query_that_worked(shop):
    _, answer = final_turn(shop, run("SELECT 1"), run(WORKS), run(FAILS))
    assert f"Your last query that ran without error:\n{WORKS}\nReturn this query" in answer.text
    assert answer.text.startswith("Tool result:\nError: no such column: nope\n\nExploration is over")
    _, answer = final_turn(shop)
    assert answer.text.endswith("Reply with your final SQL query only, as plain text.")


@pytest.mark.parametrize(
    "completion", ["SELECT 2", "<think>hm</think>```sql\nSELECT 2;\n```", submit("SELECT 2"), LOOK + submit("SELECT 2")]
)
def test_a_final_answer_that_runs_is_taken(shop, completion):
    for before in (LOOK, run(WORKS)):
        episode, _ = final_turn(shop, before)
        assert episode.step(completion) == Finished("SELECT 2", "final_turn")
        assert episode.turns[-1].calls == [] and episode.turns[-1].observation is None


@pytest.mark.parametrize(
    "completion", ["", "<think>SELECT 2</think>", "I do not know.", "SELEC 2", FAILS, submit(FAILS), submit(""), LOOK]
)
def test_a_broken_final_answer_falls_back_to_the_last_working_query(shop, completion):
    episode, _ = final_turn(shop, run(WORKS), run(FAILS))
    assert episode.step(completion) == Finished(WORKS, "fallback_to_last_working_query")


def test_a_final_answer_that_hangs_falls_back(shop_file):
    endless = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT max(x) FROM c"
    with Sandbox(shop_file) as plain, Sandbox(shop_file, dataclasses.replace(plain.limits, seconds=0.2)) as sandbox:
        episode, _ = final_turn(sandbox, run(WORKS))
        assert episode.step(endless) == Finished(WORKS, "fallback_to_last_working_query")


def test_without_a_working_query_a_broken_answer_stands(shop):
    """It is worth something if it parses; only an empty one is no answer."""
    assert final_turn(shop, run(FAILS))[0].step("SELECT nope") == Finished("SELECT nope", "final_turn")
    assert final_turn(shop, run(FAILS))[0].step("<think>x</think>") == Finished(None, "no_answer")


def test_the_token_budget_ends_an_episode_anywhere(shop):
    episode = Episode("?", shop)
    assert episode.stop("token_budget") == Finished(None, "token_budget") == episode.finished
    episode = Episode("?", shop)
    play(episode, run(WORKS), run(FAILS))
    assert episode.stop("token_budget") == Finished(WORKS, "token_budget")
    with pytest.raises(ValueError, match="'token_budget', not for 'boredom'"):
        Episode("?", shop).stop("boredom")


def test_nothing_happens_after_the_end(shop):
    episode = Episode("?", shop)
    episode.step(submit(WORKS))
    for act in (lambda: episode.step(LOOK), lambda: episode.stop("token_budget")):
        with pytest.raises(RuntimeError, match="the episode has ended by submit_sql"):
            act()
    assert episode.finished == Finished(WORKS, "submit_sql") and len(episode.turns) == 1


def test_opened_tables(shop):
    episode = Episode("?", shop)
    episode.step(LOOK + call("foreign_keys") + call("join_path", table_a="returns", table_b="customers"))
    assert episode.opened_tables == set()
    episode.step(call("describe_table", table_name="EMPTY") + call("describe_table", table_name="nope"))
    episode.step(
        call("sample_rows", table_name="Straße") + call("distinct_values", table_name="select", column_name="id")
    )
    assert episode.opened_tables == {"empty", "Straße", "select"}
    episode.step(run("SELECT 1 FROM spenders") + run("SELECT nope FROM returns"))
    assert episode.opened_tables == {"empty", "Straße", "select", "customers", "order items"}


def test_the_record_is_plain_data(shop):
    episode = Episode("?", shop)
    play(episode, LOOK + '{"tool": 1}', call("describe_table", table_name="\ud800"), "<think>" + submit(WORKS))
    record = [dataclasses.asdict(turn) for turn in episode.turns]
    assert json.loads(json.dumps(record)) == record
    first = episode.turns[0]
    assert first.completion == LOOK + '{"tool": 1}'
    assert first.calls[0] == CallRecord("list_tables", {}, first.calls[0].result, None)
    assert first.calls[1].tool == "" and first.calls[1].error == "unknown_tool"
    assert all(call.result in first.observation for call in first.calls)


@pytest.mark.parametrize("stray", ["\ud800", "\udcff"])
def test_what_the_policy_reads_can_be_encoded(shop, stray):
    """Whether or not the database takes such a query."""
    episode = Episode("?", shop, EpisodeLimits(tool_turns=2), gated=True)
    for completion in (run(f"SELECT '{stray}' AS x") + call("describe_table", table_name=stray), run(FAILS)):
        answer = episode.step(completion)
        answer.text.encode()
    assert answer.final
