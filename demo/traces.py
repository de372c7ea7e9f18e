"""Traces of the scripted explorer on the train split, as text and as tokens with a mask."""

import multiprocessing
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from sqale_grpo.corpus import open_prepared
from sqale_grpo.demo.explorer import Habits, play_script
from sqale_grpo.env.chance import rng
from sqale_grpo.env.episode import Episode
from sqale_grpo.env.sandbox import Sandbox
from sqale_grpo.env.schema import SchemaGraph
from sqale_grpo.rollout.chat import ChatFrame
from sqale_grpo.sampler import open_episode_database, select_tables
from sqale_grpo.settings.files import read_prompts

CODE_WEIGHT = 5  # of a digit that the policy writes: a stored value's code, one or two of a trace's 170 tokens
GATED = 0.3  # share of traces with a closed submit gate, so that the policy has met the refusal


@dataclass(frozen=True)
class TraceJob:
    """What a batch of traces is made from; picklable, since processes make them."""

    corpus: Path
    prompts: str | None
    tables: tuple[int, int]
    habits: Habits
    seed: int
    purpose: str


@dataclass(frozen=True)
class Trace:
    """One played episode: its first messages and (completion, next user turn or None) a turn."""

    messages: list[dict[str, str]]
    turns: list[tuple[str, str | None]]


def make_trace(job: TraceJob, number: int) -> Trace:
    """The ``number``-th trace of ``job``: all its draws are functions of seed and number."""
    corpus = open_prepared(job.corpus)
    chance = rng(job.purpose, job.seed, number)
    question = corpus.question(chance.randrange(len(corpus)), chance)
    source = corpus.database(question.db_id)
    graph = SchemaGraph.from_file(source)
    low, high = job.tables
    tables = select_tables(graph, question.gold_tables, "sampled", chance, low, high)
    with open_episode_database(source, tables) as database, Sandbox(database.path, immutable=True) as sandbox:
        gated = chance.random() < GATED
        episode = Episode(question.text, sandbox, gated=gated, prompts=read_prompts(job.prompts))
        messages = episode.prompt()
        return Trace(messages, play_script(episode, question.gold_sql, job.habits, chance))


def _make_some(job: TraceJob, numbers: Sequence[int]) -> list[Trace]:
    return [make_trace(job, number) for number in numbers]


def make_traces(job: TraceJob, count: int, processes: int = 2) -> list[Trace]:
    """``count`` traces in order, made by ``processes`` processes."""
    chunks = [range(start, min(start + 50, count)) for start in range(0, count, 50)]
    with ProcessPoolExecutor(processes, mp_context=multiprocessing.get_context("spawn")) as pool:
        return [trace for part in pool.map(_make_some, [job] * len(chunks), chunks) for trace in part]


def trace_text(trace: Trace) -> str:
    """The trace's text with the roles of its chat frame: what the tokenizer is trained on."""
    parts = [text for message in trace.messages for text in (message["role"], message["content"])]
    parts += [text for completion, answer in trace.turns for text in ("assistant", completion, "user", answer) if text]
    return "\n".join(parts)


def encode(trace: Trace, frame: ChatFrame) -> tuple[list[int], list[int]]:
    """Token ids of the whole trace, and the weight in the loss of each token that the policy is to write, else 0."""
    ids = frame.prompt_ids(trace.messages)
    mask = [0] * len(ids)
    digits = set(frame.tokenizer.convert_tokens_to_ids(list("0123456789")))
    for completion, answer in trace.turns:
        written = frame.tokenizer(completion, add_special_tokens=False)["input_ids"] + [frame.stop_id]
        ids += written
        mask += [CODE_WEIGHT if token in digits else 1 for token in written]
        if answer is not None:
            told = [*frame.before_user_ids, *frame.rest_of_user_turn_ids(answer)]
            ids += told
            mask += [0] * len(told)
    return ids, mask
