"""A chunk of an evaluation: whole questions, their episodes played beside each other, scored, and made records.

What one evaluated episode says beside its tier: the columns of an evaluation's record that metrics are made of.

``episode_metrics`` reads a finished episode alone. ``gold_columns`` runs the answer once more, for the benchmark's own
verdict, so the episode's database must still be open.
"""

import json
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

from sqale_grpo.corpus import PreparedCorpus, Question
from sqale_grpo.env.episode import CallRecord, Episode
from sqale_grpo.env.limits import SqlError
from sqale_grpo.env.sandbox import Sandbox
from sqale_grpo.env.schema import SchemaGraph
from sqale_grpo.env.text import fold_name
from sqale_grpo.evaluate.backend import Backend, Failure
from sqale_grpo.evaluate.literals import Columns, count_literals, no_columns
from sqale_grpo.evaluate.records import TokenCounts
from sqale_grpo.reward import GoldError, Outcome, bird_verdict, ehrsql_verdict, regardless_of_copies, with_agreement
from sqale_grpo.reward.digest import result_classes
from sqale_grpo.reward.score import gold_result
from sqale_grpo.rollout.group import EpisodeSettings, Group
from sqale_grpo.rollout.record import turns_record
from sqale_grpo.rollout.world import EpisodeJob, World, open_worlds

# Corpora whose benchmark has a verdict of its own.
OFFICIAL: dict[str, Callable[..., bool]] = {"bird": bird_verdict, "ehrsql": ehrsql_verdict}


def episode_metrics(
    question: Question, episode: Episode, evidence: bool, columns: Columns = no_columns
) -> dict[str, Any]:
    """Rounds, calls, table recall and literals of a finished episode, by column.

    ``evidence``: the policy was shown the question's evidence, so what that states counts as stated. ``columns``: of
    the episode's tables.
    """
    assert episode.finished is not None
    calls = [call for turn in episode.turns for call in turn.calls]
    told = f"{question.text}\n{question.evidence}" if evidence else question.text
    shown = [(call.tool, call.args, call.result) for call in calls if call.error is None]
    return {
        "rounds": len(episode.turns),
        "calls": len(calls),
        "distinct_calls": len({call_key(call) for call in calls}),
        "recall": opened_all(question.gold_tables, episode.opened_tables),
        **asdict(count_literals(question.gold_sql, told, shown, episode.finished.sql, columns)),
    }


def columns_of(schema: SchemaGraph) -> Columns:
    """Columns by table or view, however its name is spelled."""

    def columns(name: str) -> Collection[str] | None:
        found = schema.find(name) or schema.find_view(name)
        return None if found is None else schema.columns(found)

    return columns


def call_key(call: CallRecord) -> tuple[str, str]:
    """Equal for calls of one tool with equal arguments; of calls that could not be read, for the same mistake."""
    return call.tool, json.dumps(call.args, sort_keys=True) if call.tool else call.result


def opened_all(gold_tables: Iterable[str], opened: Iterable[str]) -> bool:
    """Whether every gold table was opened; names are matched as SQLite does."""
    return set(map(fold_name, gold_tables)) <= set(map(fold_name, opened))


def gold_columns(group: Group, answer: str | None, gold_seconds: float) -> dict[str, bool | None]:
    """``gold_empty``: the gold result has no rows; ``official``: the benchmark's verdict, None where it has none.

    That one has the benchmark's own limits of time. Raises GoldError as scoring does.
    """
    question, database = group.question, group.database.path
    gold = gold_result(question.gold_sql, database, group.sandbox, gold_seconds, question.question_id)
    verdict = official_verdict(question, database, answer, group.sandbox) if question.corpus in OFFICIAL else None
    return {"gold_empty": not gold.result.rows, "official": verdict}


def official_verdict(question: Question, database: Path, answer: str | None, sandbox: Sandbox) -> bool:
    """The verdict of the question's own benchmark, run by the sandbox' workers; KeyError where it has none."""
    return OFFICIAL[question.corpus](question.gold_sql, database, answer, sandbox)


def play_chunk(
    corpus: PreparedCorpus,
    questions: Sequence[int],
    settings: EpisodeSettings,
    backend: Backend,
    pool: ThreadPoolExecutor,
    *,
    candidates: int,
    seed: int,
    causes: Sequence[str],
) -> tuple[list[dict[str, Any]], dict[int, str]]:
    """Records of the questions that could be played, and for the others why not, by question number.

    No gate. Phrasing, tables and the key of token sampling follow from seed, question and candidate alone, so two
    models, or one before and after training, meet the same. ``causes``: why each question's gold is unstable, or "".
    """
    jobs = [EpisodeJob(index, candidate, False, (seed, 0)) for index in questions for candidate in range(candidates)]
    with ExitStack() as stack:
        episodes = open_worlds(corpus, jobs, settings, stack)
        counts = backend.play(episodes, pool)
        failed = {
            each.job.index: count.message
            for each, count in zip(episodes, counts, strict=True)
            if isinstance(count, Failure)
        }
        played = [
            (each, count)
            for each, count in zip(episodes, counts, strict=True)
            if each.job.index not in failed and isinstance(count, TokenCounts)
        ]
        scored = list(pool.map(lambda pair: _score(pair[0], settings), played))
    records: dict[int, list[dict[str, Any]]] = {}
    outcomes: dict[int, list[Outcome]] = {}
    for (each, count), result in zip(played, scored, strict=True):
        index = each.job.index
        if isinstance(result, Failure):
            failed[index] = result.message
            continue
        outcome, columns = result
        outcomes.setdefault(index, []).append(outcome)
        record = {**columns, **count.columns(), **episode_facts(each), "unstable": causes[index]}
        records.setdefault(index, []).append(record)
    rows = []
    for index in records.keys() - failed.keys():
        group = with_agreement(outcomes[index]) if candidates > 1 else outcomes[index]
        classes = result_classes([outcome.digest for outcome in group])
        for record, outcome, number in zip(records[index], group, classes, strict=True):
            rows.append({**record, **outcome_columns(outcome), "result_class": number})
    return sorted(rows, key=lambda row: (row["index"], row["candidate"])), failed


def _score(each: World, settings: EpisodeSettings) -> tuple[Outcome, dict[str, Any]] | Failure:
    """What the episode earned, and the columns that need its database."""
    group, episode = each.group, each.episode
    assert episode.finished is not None
    try:
        judged = each.score()
        if judged.tier == "void":
            return Failure(f"the machine failed: {judged.message}")
        columns = gold_columns(group, episode.finished.sql, settings.gold_seconds)
    except GoldError as error:
        return Failure(f"the gold query did not run: {error}")
    except SqlError as error:
        return Failure(f"the answer could not be judged: {error}")
    robust = judged.tier == "equivalent" if settings.counter_databases else None
    columns = {
        "robust": robust,
        **columns,
        **episode_metrics(group.question, episode, settings.evidence, columns_of(group.sandbox.schema)),
    }
    return regardless_of_copies(judged), columns


def episode_facts(each: World) -> dict[str, Any]:
    """The record's columns that an episode has by itself; ``update`` is the draw's, 0."""
    question, episode = each.group.question, each.episode
    assert episode.finished is not None
    return {
        "index": each.job.index,
        "update": each.job.draw[1],
        "question_id": question.question_id,
        "candidate": each.job.candidate,
        "db_id": question.db_id,
        "corpus": question.corpus,
        "difficulty": question.difficulty,
        "question": question.text,
        "gold_sql": question.gold_sql,
        "gold_tables": list(question.gold_tables),
        "tables": list(each.group.tables),
        "gated": each.job.gated,
        "turns": turns_record(episode),
        "opened_tables": sorted(episode.opened_tables),
        "sql": episode.finished.sql,
        "ended_by": episode.finished.ended_by,
    }


def outcome_columns(outcome: Outcome) -> dict[str, Any]:
    """The record's columns that scoring gives."""
    return {
        "tier": outcome.tier,
        "reward": outcome.reward,
        "f1": outcome.f1,
        "join_share": outcome.join_share,
        "agrees": outcome.agrees,
        "error": outcome.error,
        "copy": outcome.copy,
        "message": outcome.message,
    }
