"""What an answer is worth: four tiers, from the model card.

equivalent 3.0: the result matches the gold result. executable 1.0 + 0.9 F1 + 0.1 join share + 0.1 agreement: it runs
with another result, or matches by luck (``reward.copies``; F1 is then that on the copy). parsable 0.5: SQLite's parser
accepts it. invalid 0.0: the rest. The best wrong answer earns 2.1. void: the machine failed, so that nothing can be
said of the answer; it has no reward (our addition).

A candidate is scored by itself, anywhere; agreement, the one part that depends on the group, is added afterwards from
digests (``with_agreement``), so the members of a group may have been scored in different processes.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from math import nan
from pathlib import Path
from typing import Literal, Protocol

from sqale_grpo.env.limits import Kind
from sqale_grpo.env.sandbox import QueryResult, Sandbox, SqlError
from sqale_grpo.env.syntax import tokens
from sqale_grpo.reward.compare import compare
from sqale_grpo.reward.copies import Copies
from sqale_grpo.reward.digest import Digest, digest, result_classes
from sqale_grpo.reward.gold import Gold, GoldError, gold_results
from sqale_grpo.reward.joins import join_share

Tier = Literal["equivalent", "executable", "parsable", "invalid", "void"]

EQUIVALENT, PARSABLE, INVALID = 3.0, 0.5, 0.0
BASE, F1_WEIGHT, JOIN_WEIGHT, AGREEMENT_WEIGHT = 1.0, 0.9, 0.1, 0.1
# Rewards are whole numbers of this step, so that equal ones are equal to the last bit, in float32 too; the formula's
# value moves by less than 5e-7.
STEP = 2.0**-20
BEST_WRONG = int(2.1 / STEP) * STEP
GOLD_SECONDS = 30.0
NOT_ANSWERS = ("explain", "pragma")


class GoldQuery(Protocol):
    """What scoring needs of a question."""

    @property
    def question_id(self) -> str:
        """Its name, for messages."""

    @property
    def gold_sql(self) -> str:
        """The query whose result is right."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one candidate earned and why. The reward of a ``void`` one is not a number.

    ``f1`` and ``join_share`` are None where nothing executed. ``agrees``: its result is (one of) the group's most
    common, two or more candidates having it; False until ``with_agreement``. ``error``: kind of the SqlError, None
    where the query ran. ``message``: the error's text, or what differs from the gold result first. ``digest``: the
    result in bounded size, for agreement. ``copy``: the counter-database (its seed) on which an answer fell that is
    right on the question's own database; ``message`` then says what differs there.
    """

    tier: Tier
    reward: float
    f1: float | None = None
    join_share: float | None = None
    agrees: bool = False
    error: Kind | None = None
    message: str | None = None
    digest: Digest | None = None
    copy: int | None = None

    @property
    def lucky(self) -> bool:
        """Right on the question's own database, but not on its counter-databases."""
        return self.copy is not None


def score_candidate(
    gold_sql: str,
    database: str | Path,
    prediction: str | None,
    sandbox: Sandbox | None = None,
    *,
    gold_seconds: float = GOLD_SECONDS,
    question_id: str = "",
    copies: Copies | None = None,
) -> Outcome:
    """Score one answer, without regard to its group.

    ``prediction`` None: the policy gave none. ``sandbox``: where it runs, under that sandbox' limits; by default one on
    ``database`` with the default limits. ``copies``: counter-databases on which it must be right too. The gold query
    runs beside it, for up to ``gold_seconds``, and only once for all candidates. Raises GoldError where it does not
    run; ``question_id`` is for its message.
    """
    with nullcontext(sandbox) if sandbox else Sandbox(database) as box:
        gold = gold_result(gold_sql, database, box, gold_seconds, question_id)
        return judge(prediction, gold, box, copies)


def score_group(
    question: GoldQuery,
    database: str | Path,
    predictions: Sequence[str | None],
    sandbox: Sandbox | None = None,
    *,
    gold_seconds: float = GOLD_SECONDS,
    copies: Copies | None = None,
) -> list[Outcome]:
    """Score all answers to one question, in order, agreement included. Else as ``score_candidate``."""
    with nullcontext(sandbox) if sandbox else Sandbox(database) as box:
        gold = gold_result(question.gold_sql, database, box, gold_seconds, question.question_id)
        return with_agreement([judge(prediction, gold, box, copies) for prediction in predictions])


def with_agreement(outcomes: Iterable[Outcome]) -> list[Outcome]:
    """The outcomes of one whole group, agreement known: the largest classes of equal results, of two or more members.

    Classes of the same size all count. Results are equal when a chain of pairwise equal ones joins them, so the order
    of the members does not matter.
    """
    outcomes = list(outcomes)
    votes = result_classes([outcome.digest for outcome in outcomes])
    sizes = Counter(vote for vote in votes if vote is not None)
    most = max(sizes.values(), default=0)
    common = {vote for vote, size in sizes.items() if size == most and most >= 2}
    return [regarded(outcome, vote in common) for outcome, vote in zip(outcomes, votes, strict=True)]


def regarded(outcome: Outcome, agrees: bool) -> Outcome:
    """The outcome with agreement known."""
    reward = outcome.reward
    if outcome.tier == "executable":
        assert outcome.f1 is not None and outcome.join_share is not None
        reward = executable_reward(outcome.f1, outcome.join_share, agrees)
    return replace(outcome, agrees=agrees, reward=reward)


def executable_reward(f1: float, share: float, agrees: bool) -> float:
    """Reward of a query that runs with another result than the gold query's."""
    reward = BASE + F1_WEIGHT * f1 + JOIN_WEIGHT * share + AGREEMENT_WEIGHT * agrees
    return min(round(reward / STEP) * STEP, BEST_WRONG)


def gold_result(sql: str, database: str | Path, sandbox: Sandbox, seconds: float, question_id: str = "") -> Gold:
    """The gold result under the sandbox' limits except for the time. Raises GoldError."""
    try:
        limits = replace(sandbox.limits, seconds=seconds)
        return gold_results.get(sql, database, limits, sandbox.pool, sandbox.immutable)
    except GoldError as error:
        raise GoldError(error.sql, error.database, error.error, question_id) from error.error


def judge(prediction: str | None, gold: Gold, sandbox: Sandbox, copies: Copies | None = None) -> Outcome:
    """Run an answer and compare it with the gold result; agreement is left open."""
    if prediction is None:
        return Outcome("invalid", INVALID, message="no answer")
    try:
        result = run_answer(prediction, sandbox)
        share = join_share(prediction, sandbox.schema)
    except SqlError as error:
        return failed(prediction, error, sandbox)
    except OSError as error:  # the schema could not be read
        return void(str(error))
    compared = compare(result, gold.result, gold.ordered, gold.ties)
    # Right answers that break the gold's ties in different ways are one result: each votes for the gold's rows.
    voted = gold.result if compared.equivalent and gold.ties else result
    try:
        fall = copies.fall(prediction, result.tables) if copies is not None and compared.equivalent else None
    except SqlError as error:
        return void(error.message)
    f1 = compared.f1 if fall is None else fall.f1
    right = compared.equivalent and fall is None
    return Outcome(
        tier="equivalent" if right else "executable",
        reward=EQUIVALENT if right else executable_reward(f1, share, agrees=False),
        f1=f1,
        join_share=share,
        message=compared.difference if fall is None else f"right by luck: on copy {fall.seed} {fall.message}",
        digest=digest(voted, gold.ordered),
        copy=None if fall is None else fall.seed,
    )


def regardless_of_copies(outcome: Outcome) -> Outcome:
    """The outcome on the question's own database alone; ``copy`` still names the one on which it fell."""
    if not outcome.lucky:
        return outcome
    return replace(outcome, tier="equivalent", reward=EQUIVALENT, f1=1.0)


def run_answer(prediction: str, sandbox: Sandbox) -> QueryResult:
    """Execute an answer. EXPLAIN and PRAGMA return rows too, but never the question's. Raises SqlError."""
    first = next((token for token in tokens(prediction) if token != ";"), "")
    if first in NOT_ANSWERS:
        raise SqlError("denied", f"{first.upper()} is not an answer")
    return sandbox.execute(prediction)


def void(failure: str, error: Kind = "machine") -> Outcome:
    """The outcome of an answer that cannot be judged; ``failure`` is why."""
    return Outcome("void", nan, error=error, message=failure)


def failed(prediction: str, error: SqlError, sandbox: Sandbox) -> Outcome:
    """The tier of an answer that did not run to its end."""
    if error.kind == "machine":
        return void(error.message)
    refused = error.message if error.kind == "syntax" else None
    # What ran out of time or rows had been parsed; any other error may hide a syntax error that follows it.
    if error.kind not in ("syntax", "timeout", "rows"):
        try:
            refused = sandbox.parse_error(prediction)
        except SqlError as failure:
            return void(failure.message)
    if refused is not None:
        return Outcome("invalid", INVALID, error="syntax", message=refused)
    return Outcome("parsable", PARSABLE, error=error.kind, message=error.message)
