"""The scripted explorer: plays demo episodes well, or leaves out look-ups, to warm-start the demo policy.

It reads a train question's gold SQL, so it knows where the answer lies; what it writes down is only what its look-ups
showed. Whatever it did not look up it writes as the question has it: the bare noun, the concept, the plain word.
"""

import json
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass

from sqale_grpo.corpus.demo import gold_sql
from sqale_grpo.corpus.demo_words import (
    KEY_STYLES,
    NOUNS,
    NUMBER_CONCEPTS,
    REFERENCE_STYLES,
    TEXT_CONCEPTS,
)
from sqale_grpo.env.episode import Episode, Finished

_GOLD = re.compile(
    r"SELECT (?P<function>\w+)\((?:\*|(?:a\.)?(?P<number>\w+))\) FROM (?P<table>\w+)"
    r"(?: AS a JOIN (?P<parent>\w+) AS b ON a\.(?P<reference>\w+) = b\.(?P<key>\w+))?"
    r" WHERE (?:b\.)?(?P<column>\w+) = '(?P<value>\w+)'"
)
_NOUNS = frozenset(NOUNS)
_CONCEPT = {column: concept for concept, (words, _) in TEXT_CONCEPTS.items() for column in words} | {
    column: concept for concept, words in NUMBER_CONCEPTS.items() for column in words
}


@dataclass(frozen=True)
class Habits:
    """How careful the explorer is: probabilities in [0, 1] of making a look-up, of trying a query, of an idle call."""

    tables: float = 1.0
    columns: float = 1.0
    values: float = 1.0
    run: float = 1.0
    idle: float = 0.0


CAREFUL = Habits(run=0.5)  # every look-up; half of the traces submit without a trial, which keeps them short


@dataclass(frozen=True)
class Plan:
    """The parts of a demo gold query; ``number``, ``parent``, ``reference`` and ``key`` are None where it has none."""

    function: str
    number: str | None
    table: str
    parent: str | None
    reference: str | None
    key: str | None
    column: str
    value: str

    @property
    def filtered(self) -> str:
        """The table that the WHERE clause is about."""
        return self.parent or self.table

    def sql(self) -> str:
        """The query of these parts."""
        selected = f"{self.function}({{}}{self.number})" if self.number else "count(*)"
        join = (self.parent, self.reference, self.key) if self.parent and self.reference and self.key else None
        return gold_sql(self.table, self.column, self.value, selected, join)


def read_plan(sql: str) -> Plan:
    """The parts of ``sql``; ValueError where it is not written as the demo corpus writes queries."""
    match = _GOLD.fullmatch(sql)
    if match is None:
        raise ValueError(f"the scripted explorer plays only questions of the demo corpus, not {sql!r}")
    return Plan(**match.groupdict())


def guess(plan: Plan, tables: bool, columns: bool, values: bool) -> Plan:
    """``plan`` with everything that was not looked up written as the question has it, or as the first style has it.

    Always the same guess: what is left to chance is which look-ups are made, and there alone GRPO has to choose.
    """
    parts = dict(plan.__dict__)
    if not tables:
        for name in ("table", "parent"):
            if parts[name]:
                parts[name] = noun(parts[name])
    if not columns:
        parts["column"] = _CONCEPT[plan.column]
        if plan.number:
            parts["number"] = _CONCEPT[plan.number]
        if plan.parent:
            parts["reference"] = REFERENCE_STYLES[0].format(noun(plan.parent))
            parts["key"] = KEY_STYLES[0].format(noun(plan.parent))
    if not values:
        parts["value"] = plan.value.rstrip("123456789")
    return Plan(**parts)


def noun(table: str) -> str:
    """The noun in a table's name."""
    return next(part for part in table.split("_") if part in _NOUNS)


def call(thought: str, tool: str, **args: str) -> str:
    """A completion: a thought and one tool call (the chat template has opened the ``<think>``)."""
    return f"{thought}\n</think>\n" + json.dumps({"tool": tool, "args": args} if args else {"tool": tool})


def explore(plan: Plan, habits: Habits, chance: random.Random) -> Iterator[str]:
    """The explorer's completions up to the answer, one a turn.

    A thought says whether the question joins, and what kind of thing its value is, so that a later turn need not find
    it out again. The value's table is described first, with a join or without: what short questions teach serves both.
    """
    form, about = "join" if plan.parent else "one", _CONCEPT[plan.column]
    tables = chance.random() < habits.tables
    # A table whose name was guessed cannot be described, so its columns stay a guess too, unless the guess is right.
    columns = chance.random() < habits.columns
    values = chance.random() < habits.values
    known = guess(plan, tables, True, True)
    lost = (known.table, known.parent) != (plan.table, plan.parent)
    known = guess(plan, tables, columns, values) if not lost else guess(known, True, False, False)
    if chance.random() < habits.idle:
        yield call(f"{form} look", "foreign_keys")
    if tables:
        yield call(f"{form} table", "list_tables")
    if columns:
        yield call(f"{form} column", "describe_table", table_name=known.filtered)
        if plan.parent:
            yield call(f"{form} key", "describe_table", table_name=known.table)
    if values:
        yield call(f"{form} {about}", "distinct_values", table_name=known.filtered, column_name=known.column)
    if chance.random() < habits.run:
        yield call(f"{form} try {about}", "run_query", sql=known.sql())
    yield call(f"{form} answer {about}", "submit_sql", sql=known.sql())


def play_script(episode: Episode, gold: str, habits: Habits, chance: random.Random) -> list[tuple[str, str | None]]:
    """Play ``episode``; returns (completion, text of the next user turn) a turn, the last with None.

    A refused submission is answered as the gate asks: the query is run, then submitted again.
    """
    completions = list(explore(read_plan(gold), habits, chance))
    sql = json.loads(completions[-1].partition("</think>\n")[2])["args"]["sql"]
    turns: list[tuple[str, str | None]] = []
    while completions:
        completion = completions.pop(0)
        answer = episode.step(completion)
        if isinstance(answer, Finished):
            return [*turns, (completion, None)]
        turns.append((completion, answer.text))
        if answer.final:
            completions = [f"answer\n</think>\n{sql}"]
        elif not completions:
            completions = [call("try", "run_query", sql=sql), call("answer", "submit_sql", sql=sql)]
    raise AssertionError("an episode ends at the latest with its final turn")
