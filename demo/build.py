"""Building the demo policy: tokenizer, tiny model, warm start, and the check that GRPO can begin from it.

    sqale-grpo demo build-policy [--out FOLDER] [CONFIG ...] [demo_policy.key=value ...]

The package ships what this wrote (``demo/policy/``). It is made from the demo corpus' train split alone.
"""

import argparse
import dataclasses
import json
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path

import torch
from rich.console import Console
from transformers import AutoModelForCausalLM, AutoTokenizer

from sqale_grpo.corpus import open_prepared
from sqale_grpo.demo import model, warm_start
from sqale_grpo.demo.explorer import CAREFUL, Habits
from sqale_grpo.demo.traces import TraceJob, encode, make_traces, trace_text
from sqale_grpo.env.chance import rng
from sqale_grpo.env.files import whole_folder, write_whole
from sqale_grpo.rollout import chat
from sqale_grpo.rollout.demo_policy import write_card, write_sums
from sqale_grpo.rollout.group import episode_settings
from sqale_grpo.rollout.lockstep import play
from sqale_grpo.rollout.play import TOOL_THREADS, PlayedEpisode, play_jobs
from sqale_grpo.rollout.world import EpisodeJob
from sqale_grpo.settings.check import ConfigError
from sqale_grpo.settings.corpora import open_corpus
from sqale_grpo.settings.evaluation import EvaluationConfig
from sqale_grpo.settings.keys import Config, TrainCorpusConfig
from sqale_grpo.settings.load import load_config, split_words
from sqale_grpo.settings.of_run import run_evaluation_config
from sqale_grpo.settings.sampling import Sampling

COMMAND = "sqale-grpo demo build-policy"
MEASURED = "measured.json"
CHECKED = 192  # train questions on which the finished policy is measured
# Of the careful steps, the first part goes on with recall in every fourth batch, or it would be forgotten.
RECALL_STEPS, RECALL_EVERY = 0.33, 4
# Shares of the learning rates' fall that are done at the bounds of the three stages of traces.
FALLS = ((0.0, 0.5), (0.5, 0.98), (0.85, 0.99))
IMPERFECT_ROWS = 2  # times demo_policy.batch_size: these traces contradict each other, so a small batch is noise
GAPS = (0, 2, 8, 24)  # most random tokens between the parts of a row of the recall stage, one value after the other
RECALL_ROWS, COPY_ROWS = 16, 32


def main(arguments: list[str]) -> int:
    """``sqale-grpo demo build-policy``."""
    parser = argparse.ArgumentParser(
        prog=COMMAND, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("inputs", nargs="*", metavar="CONFIG | demo_policy.key=value", help="files, then overrides")
    parser.add_argument("--out", type=Path, default=Path("demo-policy"), help="folder to write (demo-policy)")
    given = parser.parse_args(arguments)
    files, overrides = split_words(given.inputs)
    config = load_config(files or ["demo"], overrides)
    console = Console()
    if given.out.exists():
        raise ConfigError(f"{given.out} is there already; name another folder with --out, or remove it")
    if config.train.threads:
        torch.set_num_threads(config.train.threads)
    plain = dataclasses.replace(config, corpus=TrainCorpusConfig(name="demo", prepared=config.corpus.prepared))
    corpus = open_corpus(plain, "train").directory
    build_policy(
        config, corpus, given.out, lambda text: console.print(text, highlight=False, soft_wrap=True), given.inputs
    )
    return 0


def trace_sizes(config: Config) -> tuple[int, int]:
    """Fewest and most tables of a trace's database: the sampler's, or no more than ``demo_policy.max_tables``."""
    return config.sampler.min_tables, config.demo_policy.max_tables or config.sampler.max_tables


def build_policy(
    config: Config, corpus: Path, folder: Path, report: Callable[[str], None], words: Sequence[str] = ()
) -> dict[str, float]:
    """Make the policy in ``folder``, measure it, and write its digests and its card; returns the rates.

    ``words``: those of the command line, for the card.
    ConfigError where it is right too seldom for GRPO to begin with.
    """
    started = time.monotonic()
    make_policy(config, corpus, folder, report)
    rates = measure(config, folder, corpus)
    report(", ".join(f"{name} {rate:.3f}" for name, rate in rates.items()))
    if rates["equivalent"] < config.demo_policy.floor:
        raise ConfigError(
            f"the demo policy answers {rates['equivalent']:.0%} of train questions, under "
            f"demo_policy.floor={config.demo_policy.floor}: too little for GRPO to begin with; raise "
            "demo_policy.clean_steps, or set another demo_policy.seed"
        )
    write_whole(folder / MEASURED, json.dumps({"questions": CHECKED, **rates}, indent=1) + "\n")
    report(f"written to {folder}, weights {write_sums(folder)}")
    write_card(folder, " ".join([COMMAND, *words]), rates, CHECKED, time.monotonic() - started)
    return rates


def make_policy(config: Config, corpus: Path, folder: Path, report: Callable[[str], None]) -> None:
    """Traces, tokenizer, model and warm start, written to ``folder``."""
    started = time.monotonic()
    policy = config.demo_policy
    job = TraceJob(corpus, config.env.prompts, trace_sizes(config), CAREFUL, policy.seed, "careful traces")
    imperfect = dataclasses.replace(
        job,
        habits=Habits(policy.look_tables, policy.look_columns, policy.look_values, policy.try_query, policy.idle),
        purpose="imperfect traces",
    )
    careful = make_traces(job, policy.careful_traces)
    report(f"{len(careful)} careful traces, {time.monotonic() - started:.0f} s")
    careless = make_traces(imperfect, policy.imperfect_traces)
    report(f"{len(careless)} imperfect traces, {time.monotonic() - started:.0f} s")
    tokenizer = model.train_tokenizer(map(trace_text, [*careful, *careless]), policy.vocab_size)
    network = model.tiny_model(policy, tokenizer, policy.seed)
    start = warm_start.WarmStart(network, policy, report)
    recall = _learn_recall(start, tokenizer, config)
    frame = chat.chat_frame(tokenizer)
    clean = warm_start.trace_batches(
        [encode(trace, frame) for trace in careful], policy.batch_size, "careful", policy.seed
    )
    kept = warm_start.alternating(*[clean] * (RECALL_EVERY - 1), recall)
    first = round(RECALL_STEPS * policy.clean_steps)
    start.stage("careful, recall kept", kept, first, FALLS[0])
    start.stage("careful", clean, policy.clean_steps - first, FALLS[1])
    left_out = warm_start.trace_batches(
        [encode(trace, frame) for trace in careless], IMPERFECT_ROWS * policy.batch_size, "imperfect", policy.seed
    )
    start.stage("imperfect", left_out, policy.imperfect_steps, FALLS[2])
    with whole_folder(folder) as partial:
        network.to(torch.bfloat16).save_pretrained(partial)  # half the bytes; whoever loads them may widen them again
        tokenizer.save_pretrained(partial)
    report(f"built in {time.monotonic() - started:.0f} s")


def _learn_recall(
    start: warm_start.WarmStart, tokenizer: model.PreTrainedTokenizerFast, config: Config
) -> warm_start.Batches:
    """The stages before any trace; returns the batches of the last recall stage, to be gone on with.

    Recall first: a model that has learned to copy text by its place does not come to copy it by its content.
    """
    policy = config.demo_policy
    chance = rng("recall", policy.seed)
    copies = warm_start.copy_batches(len(tokenizer), COPY_ROWS, torch.Generator().manual_seed(policy.seed))
    for gap in GAPS:
        recall = warm_start.recall_batches(tokenizer, RECALL_ROWS, gap, chance)
        start.stage(f"recall, gaps of {gap}", recall, policy.copy_max_steps, (0.0, 0.0), policy.copy_loss)
    both = warm_start.alternating(recall, copies)
    start.stage("recall and copying", both, policy.copy_max_steps, (0.0, 0.0), policy.copy_loss)
    return recall


def measure(config: Config, folder: Path, corpus: Path) -> dict[str, float]:
    """Rates over ``CHECKED`` train questions, sampled as in the evaluation, and at temperature 1 as in training."""
    network = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    frame = chat.chat_frame(AutoTokenizer.from_pretrained(folder))
    asked = run_evaluation_config(config, "policy check", folder)
    evaluated = asked.sampling.sampling()
    plain = dataclasses.replace(evaluated, temperature=1.0, top_p=1.0, top_k=0)
    sampled = _play(asked, network, frame, corpus, evaluated, config.demo_policy.seed)
    trained = _play(asked, network, frame, corpus, plain, config.demo_policy.seed)
    opened = [set(p.group.question.gold_tables) <= set(p.episode.opened_tables) for p in sampled]
    return {
        "equivalent": _rate(sampled),
        "equivalent_at_1": _rate(trained),
        "opened_every_gold_table": sum(opened) / len(opened),
    }


def _rate(played: list[PlayedEpisode]) -> float:
    return sum(p.outcome.tier == "equivalent" for p in played) / len(played)


def _play(
    asked: EvaluationConfig,
    network: torch.nn.Module,
    frame: chat.ChatFrame,
    corpus: Path,
    sampling: Sampling,
    seed: int,
) -> list[PlayedEpisode]:
    prepared = open_prepared(corpus)
    chosen = rng("policy check", seed).sample(range(len(prepared)), min(CHECKED, len(prepared)))
    with ThreadPoolExecutor(TOOL_THREADS) as pool:
        return play_jobs(
            prepared,
            [EpisodeJob(index, 0, False, (seed, 0)) for index in chosen],
            episode_settings(asked, asked.schema),
            lambda episodes, keys: play(network, frame, episodes, keys, sampling, pool),
            pool,
            lambda stage: nullcontext(),
        )
