"""The evaluation harness: plays seeded questions of a corpus with a policy and scores the answers."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import Any

from corpus import PreparedCorpus
from env.chance import rng
from evaluate.episode_metrics import episode_metrics
from evaluate.records import token_counts
from train.rollout.update import EpisodeJob, EpisodeSettings, PlayedEpisode, PlayFunction, play_jobs

BATCH = 128  # episodes in flight


def choose_questions(corpus: PreparedCorpus, count: int, seed: int) -> list[int]:
    """Indices of ``count`` questions, drawn without repetition; the same seed gives the same ones for every model.

    A corpus with fewer gives all of them.
    """
    return sorted(rng("evaluation questions", seed).sample(range(len(corpus)), min(count, len(corpus))))


def evaluate(
    corpus: PreparedCorpus,
    questions: Sequence[int],
    settings: EpisodeSettings,
    seed: int,
    play: PlayFunction,
    pool: ThreadPoolExecutor,
    on_progress: Callable[[int], None] = lambda done: None,
) -> list[dict[str, Any]]:
    """One record a question, in order: what ``evaluate.metrics.summarize`` reads.

    One candidate a question, no gate. Phrasing, tables and token sampling follow from the seed and the question
    alone, so two models, or one before and after training, meet the same.
    """
    records: list[dict[str, Any]] = []
    causes = corpus.unstable()
    for start in range(0, len(questions), BATCH):
        jobs = [EpisodeJob(index, 0, False, (seed, 0)) for index in questions[start : start + BATCH]]
        played = play_jobs(corpus, jobs, settings, play, pool, lambda stage: nullcontext())
        records += [evaluation_record(p, causes[p.job.index], settings.evidence) for p in played]
        on_progress(len(records))
    return records


def evaluation_record(played: PlayedEpisode, unstable: str, evidence: bool) -> dict[str, Any]:
    """The facts of one evaluated episode; ``unstable``: why its gold result may change between two runs, or empty."""
    question = played.world.question
    return {
        "question_id": question.question_id,
        "difficulty": question.difficulty,
        "unstable": unstable,
        "tables": list(played.world.tables),
        "tier": played.outcome.tier,
        "reward": played.outcome.reward,
        "sql": played.answer,
        "ended_by": played.facts["ended_by"],
        "official": None,
        "gold_empty": None,
        "result_class": None,
        **episode_metrics(question, played.episode, evidence),
        **token_counts(len(played.tokens.prompt_ids), played.tokens.env_mask).columns(),
    }
