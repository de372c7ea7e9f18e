"""Building the demo policy: tokenizer, tiny model, warm start, and the check that GRPO can begin from it. Cached.

It stands in for a pretrained checkpoint, because none can be shipped. It is made from the train split alone.
"""

import dataclasses
import hashlib
import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from sqale_grpo.corpus import open_prepared
from sqale_grpo.corpus.prepared import MARKER
from sqale_grpo.demo import explorer, model, traces, warm_start
from sqale_grpo.demo.explorer import CAREFUL, Habits
from sqale_grpo.demo.traces import TraceJob, encode, make_traces, trace_text
from sqale_grpo.env.chance import rng
from sqale_grpo.env.files import hold_folder, whole_folder, write_whole
from sqale_grpo.rollout import chat
from sqale_grpo.rollout.group import episode_settings
from sqale_grpo.rollout.lockstep import play
from sqale_grpo.rollout.play import TOOL_THREADS, EpisodeJob, play_jobs
from sqale_grpo.settings.check import ConfigError
from sqale_grpo.settings.keys import Config
from sqale_grpo.settings.of_run import run_evaluation_config

_SOURCES = (explorer, model, traces, warm_start, chat)
MEASURED = "measured.json"
CHECKED = 96  # train questions on which the finished policy is measured
CLEAN_SHARE = 0.85  # of the warm start's learning-rate fall that the careful traces take


def policy_key(config: Config, corpus: Path) -> str:
    """A digest of all that the policy is made from: its settings, prompts, corpus, and the code that builds it."""
    digest = hashlib.blake2b(digest_size=8)
    settings = {name: value for name, value in dataclasses.asdict(config.demo_policy).items() if name != "max_tables"}
    digest.update(json.dumps(settings, sort_keys=True).encode())
    digest.update(json.dumps(trace_sizes(config)).encode())
    digest.update((corpus / MARKER).read_bytes())
    if config.env.prompts:
        digest.update(Path(config.env.prompts).read_bytes())
    for module in _SOURCES:
        digest.update(Path(module.__file__ or "").read_bytes())
    return digest.hexdigest()


def trace_sizes(config: Config) -> tuple[int, int]:
    """Fewest and most tables of a trace's database: the sampler's, or no more than ``demo_policy.max_tables``."""
    return config.sampler.min_tables, config.demo_policy.max_tables or config.sampler.max_tables


def build_policy(config: Config, corpus: Path, cache: Path, report: Callable[[str], None]) -> Path:
    """Folder of the demo policy in Hugging Face's layout; built when ``cache`` has none of the same inputs."""
    with hold_folder(cache, wait=True):  # one process builds, the others of the launch wait and find it
        return _built_policy(config, corpus, cache / policy_key(config, corpus), report)


def _built_policy(config: Config, corpus: Path, folder: Path, report: Callable[[str], None]) -> Path:
    if (folder / MEASURED).exists():
        report(f"demo policy: cached in {folder}")
        return folder
    if not folder.exists():
        make_policy(config, corpus, folder, report)
    rate = equivalent_rate(config, folder, corpus)
    report(f"demo policy: {rate:.0%} equivalent on {CHECKED} train questions at the temperature of the evaluation")
    if rate < config.demo_policy.floor:
        raise ConfigError(
            f"the demo policy answers {rate:.0%} of train questions, under demo_policy.floor="
            f"{config.demo_policy.floor}: too little for GRPO to begin with; raise demo_policy.clean_max_steps, or set "
            "another demo_policy.seed"
        )
    write_whole(folder / MEASURED, json.dumps({"equivalent": rate, "n": CHECKED}))
    return folder


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
    report(f"demo policy: {len(careful)} careful traces, {time.monotonic() - started:.0f} s")
    careless = make_traces(imperfect, policy.imperfect_traces)
    report(f"demo policy: {len(careless)} imperfect traces, {time.monotonic() - started:.0f} s")
    tokenizer = model.train_tokenizer(map(trace_text, [*careful, *careless]), policy.vocab_size)
    frame = chat.chat_frame(tokenizer)
    network = model.tiny_model(policy, tokenizer, policy.seed)
    generator = torch.Generator().manual_seed(policy.seed)
    start = warm_start.WarmStart(network, policy, lambda text: report(f"demo policy: {text}"))
    copies = warm_start.copy_batches(len(tokenizer), 8 * policy.batch_size, generator)
    start.stage("copying", copies, policy.copy_max_steps, (0.0, 0.0), policy.copy_loss)
    for name, made, steps, fall, until in (
        ("careful", careful, policy.clean_max_steps, (0.0, CLEAN_SHARE), policy.clean_loss),
        ("imperfect", careless, policy.imperfect_steps, (CLEAN_SHARE, 1.0), None),
    ):
        encoded = [encode(trace, frame) for trace in made]
        batches = warm_start.trace_batches(encoded, policy.batch_size, name, policy.seed)
        start.stage(name, batches, steps, fall, until)
    with whole_folder(folder) as partial:
        network.save_pretrained(partial)
        tokenizer.save_pretrained(partial)
    report(f"demo policy: built in {time.monotonic() - started:.0f} s: {folder}")


def equivalent_rate(config: Config, folder: Path, corpus: Path) -> float:
    """Share of ``CHECKED`` train questions that the policy answers, sampled as in the evaluation."""
    prepared, seed = open_prepared(corpus), config.demo_policy.seed
    asked = run_evaluation_config(config, "policy check", folder)
    chosen = rng("policy check", seed).sample(range(len(prepared)), min(CHECKED, len(prepared)))
    network = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    frame = chat.chat_frame(AutoTokenizer.from_pretrained(folder))
    with ThreadPoolExecutor(TOOL_THREADS) as pool:
        played = play_jobs(
            prepared,
            [EpisodeJob(index, 0, False, (seed, 0)) for index in chosen],
            episode_settings(asked, asked.schema),
            lambda episodes, keys: play(network, frame, episodes, keys, asked.sampling.sampling(), pool),
            pool,
            lambda stage: nullcontext(),
        )
    return sum(p.outcome.tier == "equivalent" for p in played) / len(played)
