"""What one evaluated episode says beside its tier: the columns of an evaluation's record that metrics are made of.

``episode_metrics`` reads a finished episode alone. ``gold_columns`` runs the answer once more, for the benchmark's own
verdict, so the episode's database must still be open.
"""

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from corpus import Question
from corpus.ehrsql import resolve_placeholders
from env.episode import CallRecord, Episode
from env.names import fold_name
from env.sandbox import Sandbox
from evaluate.literals import count_literals
from reward import bird_verdict, ehrsql_verdict
from reward.score import gold_result
from train.rollout.group import World

# Corpora whose benchmark has a verdict of its own, and what it does to an answer first.
OFFICIAL: dict[str, tuple[Callable[..., bool], Callable[[str], str]]] = {
    "bird": (bird_verdict, str),
    "ehrsql": (ehrsql_verdict, resolve_placeholders),
}
OFFICIAL_SECONDS = 30.0  # BIRD's limit a query


def episode_metrics(question: Question, episode: Episode, evidence: bool) -> dict[str, Any]:
    """Rounds, calls, table recall and literals of a finished episode, by column.

    ``evidence``: the policy was shown the question's evidence, so what that states counts as stated.
    """
    assert episode.finished is not None
    calls = [call for turn in episode.turns for call in turn.calls]
    told = f"{question.text}\n{question.evidence}" if evidence else question.text
    shown = [call.result for call in calls if call.error is None]
    return {
        "rounds": len(episode.turns),
        "calls": len(calls),
        "distinct_calls": len({call_key(call) for call in calls}),
        "recall": opened_all(question.gold_tables, episode.opened_tables),
        **asdict(count_literals(question.gold_sql, told, shown, episode.finished.sql)),
    }


def call_key(call: CallRecord) -> tuple[str, str]:
    """Equal for calls of one tool with equal arguments; of calls that could not be read, for the same mistake."""
    return call.tool, json.dumps(call.args, sort_keys=True) if call.tool else call.result


def opened_all(gold_tables: Iterable[str], opened: Iterable[str]) -> bool:
    """Whether every gold table was opened; names are matched as SQLite does."""
    return set(map(fold_name, gold_tables)) <= set(map(fold_name, opened))


def gold_columns(world: World, answer: str | None, gold_seconds: float) -> dict[str, bool | None]:
    """``gold_empty``: the gold result has no rows; ``official``: the benchmark's verdict, None where it has none.

    For that one the answer may run 30 s, as in BIRD's own evaluation. Raises GoldError as scoring does.
    """
    question, database = world.question, world.database.path
    gold = gold_result(question.gold_sql, database, world.sandbox, gold_seconds, question.question_id)
    verdict = None
    if question.corpus in OFFICIAL:
        limits = replace(world.sandbox.limits, seconds=OFFICIAL_SECONDS)
        with Sandbox(database, limits, world.sandbox.pool) as sandbox:
            verdict = official_verdict(question, database, answer, sandbox, gold_seconds)
    return {"gold_empty": not gold.result.rows, "official": verdict}


def official_verdict(
    question: Question, database: Path, answer: str | None, sandbox: Sandbox, gold_seconds: float
) -> bool:
    """The verdict of the question's own benchmark; KeyError where it has none.

    EHRSQL's evaluation replaces the placeholders of answers too, since its models write them.
    """
    verdict, resolve = OFFICIAL[question.corpus]
    resolved = None if answer is None else resolve(answer)
    return verdict(question.gold_sql, database, resolved, sandbox, gold_seconds=gold_seconds)
