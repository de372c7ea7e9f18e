"""One episode: a question, a database, and the turns until there is an answer.

A pure state machine that knows nothing of models and tokens: whoever generates (training, evaluation, the agent, a
person) asks for ``prompt()``, hands every completion to ``step()``, and gets the next user turn or the end.

A tool turn runs its calls in order, up to a ``submit_sql``. After the last tool turn, or after too many failed queries
in a row, comes the final turn, whose text is the answer.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from sqale_grpo.env.budget import Budget
from sqale_grpo.env.limits import Query, SqlError
from sqale_grpo.env.prompts import Prompts, load_prompts
from sqale_grpo.env.protocol import CallError, ToolCall, final_sql, parse_turn, same_query_key
from sqale_grpo.env.sandbox import Sandbox
from sqale_grpo.env.tools import EpisodeLimits, MachineError, ToolResult, check_machine, error_text, run_tools

__all__ = ["CallRecord", "EndedBy", "Episode", "EpisodeLimits", "Finished", "Observation", "Turn"]

# A turn's queries may return together what one may, and take so many times its wall time: a net above the steps.
TURN_SECONDS = 3

EndedBy = Literal["submit_sql", "final_turn", "fallback_to_last_working_query", "no_answer", "token_budget", "void"]


@dataclass(frozen=True)
class Observation:
    """The text of the next user turn. ``final``: the completion after it is the final turn."""

    text: str
    final: bool


@dataclass(frozen=True)
class Finished:
    """The end. ``sql`` is None where there is no answer at all; an answer need not be a query that runs.

    ``failure``: what the machine could not do where the episode is ``void``: it is worth no reward, not even 0.
    """

    sql: str | None
    ended_by: EndedBy
    failure: str | None = None


@dataclass(frozen=True)
class CallRecord:
    """One call or one error of a turn, with what the policy was told.

    ``error`` is None or the class of the failure: of a call that could not be read (``no_call``, ``bad_json``,
    ``unknown_tool``, ``bad_args``; ``tool`` is "" then), of a name (``bad_name``), of a refused submission (``gate``),
    or of a query (an SqlError kind). ``not_run``: the turn was stopped before it. ``result`` of an accepted submission
    is "".
    """

    tool: str
    args: dict[str, Any]
    result: str
    error: str | None = None


@dataclass
class Turn:
    """One completion, what was run of it, and the user turn that answered it (None: the episode ended)."""

    completion: str
    calls: list[CallRecord] = field(default_factory=list)
    observation: str | None = None


class Episode:
    """One candidate's way through one question. Not for several threads at once."""

    def __init__(
        self,
        question_text: str,
        sandbox: Sandbox,
        limits: EpisodeLimits | None = None,
        gated: bool = False,
        evidence: str = "",
        prompts: Prompts | None = None,
    ) -> None:
        """``gated``: ``submit_sql`` is refused until the same query ran without error in this episode.

        ``evidence`` is shown after the question (our assumption); ``prompts`` None takes the project's own.
        """
        self.limits = limits or EpisodeLimits()
        self.gated = gated
        self.turns: list[Turn] = []
        self.finished: Finished | None = None
        self.opened_tables: set[str] = set()
        self.last_working_query: str | None = None
        self._question = question_text
        self._evidence = evidence
        self._sandbox = sandbox
        self._prompts = prompts or load_prompts()
        self._ran: set[str] = set()
        self._failures = 0
        self._final = False

    def prompt(self) -> list[dict[str, str]]:
        """The first messages, ``{"role": ..., "content": ...}``: system and user."""
        return self._prompts.first_messages(self._question, self._evidence, self.limits.tool_turns)

    def step(self, completion_text: str) -> Observation | Finished:
        """Take the policy's next completion, with or without its opening ``<think>``. RuntimeError after the end."""
        self._must_be_open()
        turn = Turn(completion_text)
        self.turns.append(turn)
        if self._final:
            return self._answer(final_sql(completion_text))
        entries = _up_to_submission(parse_turn(completion_text))
        calls = [entry for entry in entries if isinstance(entry, ToolCall) and entry.tool != "submit_sql"]
        try:
            results = iter(self._run(calls))
        except (MachineError, OSError) as error:  # OSError: the schema could not be read
            return self._void(str(error))
        for entry in entries:
            record = self._record(entry, results)
            if record.error != "not_run" or "not_run" not in [call.error for call in turn.calls]:
                turn.calls.append(record)  # of those that were not run the first one says why
            if record.tool == "submit_sql" and record.error is None:
                return self._end(record.args["sql"], "submit_sql")
        return self._observe(turn)

    def _run(self, calls: list[ToolCall]) -> list[ToolResult]:
        """The calls' results; a turn is stopped in its middle where it has used what a turn may use."""
        run, left = calls[: self.limits.turn_calls], calls[self.limits.turn_calls :]
        limits = self.limits
        query = self._sandbox.limits
        budget = Budget(
            limits.error_cap,
            limits.error_cap - self._failures,
            limits.turn_steps,
            TURN_SECONDS * query.seconds,
            query.result_mb * 1_000_000,
        )
        unread = ToolResult(error_text(f"not run: a turn runs at most {limits.turn_calls} calls"), "not_run")
        return [*run_tools(run, self._sandbox, limits, budget), *[unread] * len(left)]

    def _void(self, failure: str) -> Finished:
        """The machine failed: nothing can be said of the policy."""
        self.finished = Finished(None, "void", failure)
        return self.finished

    def stop(self, reason: Literal["token_budget"], unfinished: str = "") -> Finished:
        """End from outside, when the episode's token budget is used up: the last working query is the answer.

        ``unfinished``: what the policy had written of a turn by then; it is recorded, and no call of it is run.
        """
        self._must_be_open()
        if reason != "token_budget":
            raise ValueError(f"an episode is stopped for 'token_budget', not for {reason!r}")
        if unfinished:
            self.turns.append(Turn(unfinished))
        return self._end(self.last_working_query, "token_budget")

    def _must_be_open(self) -> None:
        if self.finished is not None:
            raise RuntimeError(f"the episode has ended by {self.finished.ended_by}: start another one")

    def _record(self, entry: ToolCall | CallError, results: Iterator[ToolResult]) -> CallRecord:
        if isinstance(entry, CallError):
            return CallRecord("", {}, error_text(entry.message), entry.kind)
        if entry.tool == "submit_sql":
            return self._submit(entry)
        result = next(results)
        self.opened_tables |= result.opened
        if entry.tool == "run_query" and result.error != "not_run":
            self._note_query(entry.args["sql"], result.error is None)
        return CallRecord(entry.tool, entry.args, result.text, result.error)

    def _submit(self, call: ToolCall) -> CallRecord:
        if self.gated and same_query_key(call.args["sql"]) not in self._ran:
            return CallRecord(call.tool, call.args, self._prompts.gate_refusal, "gate")
        return CallRecord(call.tool, call.args, "")

    def _note_query(self, sql: str, worked: bool) -> None:
        if worked:
            self._failures = 0
            self.last_working_query = sql
            if self.gated:
                self._ran.add(same_query_key(sql))
            return
        self._failures += 1
        # Once reached, the cap holds, even if a later query of the same turn works (our assumption).
        self._final = self._final or self._failures >= self.limits.error_cap

    def _observe(self, turn: Turn) -> Observation:
        left = self.limits.tool_turns - len(self.turns)
        self._final = self._final or left == 0
        results = [call.result for call in turn.calls]
        if self._final:
            text = self._prompts.final_message(results, self.last_working_query)
        else:
            text = self._prompts.result_message(results, left)
        turn.observation = text
        return Observation(text, self._final)

    def _answer(self, sql: str) -> Finished:
        """The final turn: an answer that is empty or does not run gives way to the last working query."""
        try:
            if sql and (self.last_working_query is None or self._runs(sql)):
                return self._end(sql, "final_turn")
        except (MachineError, OSError) as error:  # OSError: the schema could not be read
            return self._void(str(error))
        if self.last_working_query is not None:
            return self._end(self.last_working_query, "fallback_to_last_working_query")
        return self._end(None, "no_answer")

    def _runs(self, sql: str) -> bool:
        """Judged like a ``run_query``: by its first rows."""
        query = Query(sql, self.limits.preview_rows, True, self.limits.cell_chars)
        (found,) = self._sandbox.ask([query])
        if isinstance(found, SqlError):
            check_machine(found, self._sandbox.database)
            return False
        return True

    def _end(self, sql: str | None, ended_by: EndedBy) -> Finished:
        self.finished = Finished(sql, ended_by)
        return self.finished


def _up_to_submission(entries: list[ToolCall | CallError]) -> list[ToolCall | CallError]:
    """Nothing after a submission is run, be it accepted or refused."""
    for place, entry in enumerate(entries):
        if isinstance(entry, ToolCall) and entry.tool == "submit_sql":
            return entries[: place + 1]
    return entries
