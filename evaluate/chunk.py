"""A chunk of an evaluation: whole questions, their episodes played beside each other, scored, and made records."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

from corpus import PreparedCorpus
from env.limits import SqlError
from evaluate.backend import Backend, Failure
from evaluate.episode_metrics import episode_metrics, gold_columns
from evaluate.records import TokenCounts
from reward import GoldError, Outcome, with_agreement
from reward.score import result_classes
from train.episode_log import turns_record
from train.rollout.update import EpisodeJob, EpisodeSettings, OpenEpisode, open_episodes, score_episode


def play_chunk(
    corpus: PreparedCorpus,
    questions: Sequence[int],
    candidates: int,
    seed: int,
    settings: EpisodeSettings,
    backend: Backend,
    pool: ThreadPoolExecutor,
    causes: Sequence[str],
) -> tuple[list[dict[str, Any]], dict[int, str]]:
    """Records of the questions that could be played, and for the others why not, by question number.

    No gate. Phrasing, tables and the key of token sampling follow from seed, question and candidate alone, so two
    models, or one before and after training, meet the same. ``causes``: why each question's gold is unstable, or "".
    """
    jobs = [EpisodeJob(index, candidate, False, (seed, 0)) for index in questions for candidate in range(candidates)]
    with ExitStack() as stack:
        episodes = open_episodes(corpus, jobs, settings, stack)
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


def _score(each: OpenEpisode, settings: EpisodeSettings) -> tuple[Outcome, dict[str, Any]] | Failure:
    """What the episode earned, and the columns that need its database."""
    world, episode = each.world, each.episode
    assert episode.finished is not None
    try:
        outcome = score_episode(world, episode, settings)
        columns = gold_columns(world, episode.finished.sql, settings.gold_seconds)
    except GoldError as error:
        return Failure(f"the gold query did not run: {error}")
    except SqlError as error:
        return Failure(f"the answer could not be judged: {error}")
    return outcome, {**columns, **episode_metrics(world.question, episode, settings.evidence)}


def episode_facts(each: OpenEpisode) -> dict[str, Any]:
    """The record's columns that an episode has by itself; ``update`` is the draw's, 0."""
    question, episode = each.world.question, each.episode
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
        "tables": list(each.world.tables),
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
        "message": outcome.message,
    }
