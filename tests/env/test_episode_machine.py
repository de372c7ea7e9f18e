"""Random completions drive an episode; what it must hold is worked out again from its record alone."""

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import event, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from sqale_grpo.env.episode import Episode, EpisodeLimits, Finished, Observation
from sqale_grpo.env.protocol import same_query_key
from sqale_grpo.env.sandbox import Sandbox

QUERIES = st.sampled_from(
    [
        "SELECT id FROM customers",
        "SELECT  id FROM customers ;",
        "SELECT count(*) FROM empty",
        "SELECT nope FROM customers",
        "SELECT 1; SELECT 2",
        "DELETE FROM customers",
        "SELEC",
        "",
        " ; ",
    ]
)
NAMES = st.sampled_from(["customers", "Order Items", '"select"', "nope", "spenders", "", "\ud800"])


def calls(tool: str, **args: st.SearchStrategy) -> st.SearchStrategy[str]:
    return st.fixed_dictionaries({"tool": st.just(tool), "args": st.fixed_dictionaries(args)}).map(json.dumps)


CALLS = st.one_of(
    calls("list_tables"),
    calls("describe_table", table_name=NAMES),
    calls("join_path", table_a=NAMES, table_b=NAMES),
    calls("sample_rows", table_name=NAMES, limit=st.integers(-1, 30)),
    calls("distinct_values", table_name=NAMES, column_name=st.sampled_from(["id", "x"])),
    calls("run_query", sql=QUERIES),
    calls("run_query", sql=QUERIES),
    calls("submit_sql", sql=QUERIES),
    st.sampled_from(['{"tool": "run_query"}', '{"tool": 5}', '{"tool": "list_tables",}', "{x}", "text", ""]),
)
THOUGHTS = st.sampled_from(["", "<think>plan</think>\n", 'draft {"tool": "list_tables"}</think>'])
COMPLETIONS = st.one_of(
    st.builds(lambda thought, parts: thought + "\n".join(parts), THOUGHTS, st.lists(CALLS, max_size=5)),
    st.builds(lambda thought, sql: f"{thought}```sql\n{sql}\n```", THOUGHTS, QUERIES),
    st.text(max_size=20),
)


class EpisodeMachine(RuleBasedStateMachine):
    """Steps until the end; ``answers`` are what the episode said."""

    def __init__(self, sandbox: Sandbox, runs: Callable[[str], bool]) -> None:
        super().__init__()
        self.sandbox, self.runs = sandbox, runs
        self.answers: list[Observation | Finished] = []

    @initialize(turns=st.integers(1, 6), cap=st.integers(1, 4), gated=st.booleans())
    def start(self, turns: int, cap: int, gated: bool) -> None:
        limits = EpisodeLimits(tool_turns=turns, error_cap=cap)
        self.episode = Episode("?", self.sandbox, limits, gated=gated)

    @rule(completion=COMPLETIONS)
    @precondition(lambda self: self.episode.finished is None)
    def step(self, completion: str) -> None:
        self.answers.append(self.episode.step(completion))

    @rule(stop=st.integers(0, 5))
    @precondition(lambda self: self.episode.finished is None)
    def stop(self, stop: int) -> None:
        if stop == 0:
            self.answers.append(self.episode.stop("token_budget"))

    @rule(completion=COMPLETIONS)
    @precondition(lambda self: self.episode.finished is not None)
    def step_after_the_end(self, completion: str) -> None:
        before = (self.episode.finished, len(self.episode.turns))
        try:
            self.episode.step(completion)
        except RuntimeError:
            assert (self.episode.finished, len(self.episode.turns)) == before
        else:
            raise AssertionError("a step after the end was taken")

    def records(self) -> list:
        return [record for turn in self.episode.turns for record in turn.calls]

    def queries(self) -> list[tuple[str, bool]]:
        """(SQL, whether it ran), judged by a bare connection; without those before which the turn was stopped."""
        return [(r.args["sql"], self.runs(r.args["sql"])) for r in self.asked()]

    def asked(self) -> list:
        return [r for r in self.records() if r.tool == "run_query" and r.error != "not_run"]

    def explored_out(self) -> bool:
        """Whether the turns are used up, or so many queries in a row have failed."""
        in_a_row, longest = 0, 0
        for _, ran in self.queries():
            in_a_row = 0 if ran else in_a_row + 1
            longest = max(longest, in_a_row)
        limits = self.episode.limits
        return len(self.episode.turns) >= limits.tool_turns or longest >= limits.error_cap

    @invariant()
    def the_turns_are_counted(self) -> None:
        spent, turns = len(self.episode.turns), self.episode.limits.tool_turns
        assert spent <= turns + 1
        if self.answers and isinstance(self.answers[-1], Observation):
            answer = self.answers[-1]
            assert answer.final == self.explored_out()
            line = f"[{turns - spent} tool turn{'s' if turns - spent > 1 else ''} left before you must answer]"
            assert answer.text.endswith(line) != answer.final
            assert answer.text == self.episode.turns[-1].observation

    @invariant()
    def there_is_one_end(self) -> None:
        ends = [answer for answer in self.answers if isinstance(answer, Finished)]
        assert ends == ([] if self.episode.finished is None else [self.episode.finished])
        assert not ends or self.answers[-1] is ends[0]
        finals = [answer.final for answer in self.answers if isinstance(answer, Observation)]
        assert not any(finals[:-1])

    @invariant()
    def the_last_working_query_ran(self) -> None:
        working = [sql for sql, ran in self.queries() if ran]
        assert self.episode.last_working_query == (working[-1] if working else None)
        assert [r.error is None for r in self.asked()] == [ran for _, ran in self.queries()]

    @invariant()
    def a_turn_that_is_stopped_answers_nothing_more(self) -> None:
        """One call says that it was not run and why; what follows is at most a call that no tool answers."""
        for turn in self.episode.turns:
            errors = [record.error for record in turn.calls if record.tool not in ("", "submit_sql")]
            if "not_run" in errors:
                assert errors.index("not_run") == len(errors) - 1
                assert self.explored_out()

    @invariant()
    def nothing_is_run_after_a_submission(self) -> None:
        for turn in self.episode.turns:
            assert "submit_sql" not in [record.tool for record in turn.calls[:-1]]

    @invariant()
    def the_gate_lets_only_tried_queries_pass(self) -> None:
        ran = set()
        for record in self.records():
            if record.tool == "run_query" and record.error is None:
                ran.add(same_query_key(record.args["sql"]))
            if record.tool == "submit_sql":
                passes = not self.episode.gated or same_query_key(record.args["sql"]) in ran
                assert record.error == (None if passes else "gate")

    @invariant()
    def the_end_is_what_the_record_says(self) -> None:
        finished = self.episode.finished
        if finished is None:
            return
        event(finished.ended_by)
        last = self.episode.turns[-1].calls[-1:] if self.episode.turns else []
        submitted = [record.args["sql"] for record in last if record.tool == "submit_sql" and record.error is None]
        assert (finished.ended_by == "submit_sql") == bool(submitted)
        working = self.episode.last_working_query
        if submitted:
            assert finished.sql == submitted[0]
        elif finished.ended_by == "final_turn":
            assert finished.sql and (working is None or self.runs(finished.sql))
        elif finished.ended_by == "no_answer":
            assert finished.sql is None and working is None
        else:
            assert finished.sql == working
            assert working is not None or finished.ended_by == "token_budget"


@pytest.mark.full
def test_random_episodes(shop: Sandbox, shop_file: Path):
    known: dict[str, bool] = {}

    def runs(sql: str) -> bool:
        """Whether a bare connection gives rows or an empty result, and the statement is one query."""
        if sql not in known:
            with closing(sqlite3.connect(f"{shop_file.as_uri()}?mode=ro&immutable=1", uri=True)) as connection:
                try:
                    known[sql] = connection.execute(sql).description is not None
                except (sqlite3.Error, sqlite3.Warning, UnicodeEncodeError, ValueError):
                    known[sql] = False
        return known[sql]

    run_state_machine_as_test(lambda: EpisodeMachine(shop, runs), settings=settings(stateful_step_count=10))
