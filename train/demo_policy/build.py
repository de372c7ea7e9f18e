"""Building the demo policy: tokenizer, tiny model, warm start, and the check that GRPO can begin from it. Cached.

It stands in for a pretrained checkpoint, because none can be shipped. It is made from the train split alone.
"""

import dataclasses
import hashlib
import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import torch

from corpus import open_prepared
from train.config import Config
from train.demo_policy import explorer, model, traces, warm_start
from train.demo_policy.explorer import CAREFUL, Habits
from train.demo_policy.traces import TraceJob, encode, make_traces, trace_text
from train.rollout import chat

_SOURCES = (explorer, model, traces, warm_start, chat)
CLEAN_SHARE = 0.75  # of the warm start's learning-rate fall that the careful traces take


def policy_key(config: Config, corpus: Path) -> str:
    """A digest of all that the policy is made from: its settings, prompts, corpus, and the code that builds it."""
    digest = hashlib.blake2b(digest_size=8)
    digest.update(json.dumps(dataclasses.asdict(config.policy), sort_keys=True).encode())
    digest.update(json.dumps([config.sampler.min_tables, config.sampler.max_tables]).encode())
    digest.update((corpus / "manifest.json").read_bytes())
    if config.env.prompts:
        digest.update(Path(config.env.prompts).read_bytes())
    for module in _SOURCES:
        digest.update(Path(module.__file__ or "").read_bytes())
    return digest.hexdigest()


def build_policy(config: Config, corpus: Path, cache: Path, report: Callable[[str], None]) -> Path:
    """Folder of the demo policy in Hugging Face's layout; built when ``cache`` has none of the same inputs."""
    folder = cache / policy_key(config, corpus)
    if (folder / "model.safetensors").exists():
        report(f"demo policy: cached in {folder}")
        return folder
    started = time.monotonic()
    policy = config.policy
    sizes = (config.sampler.min_tables, config.sampler.max_tables)
    job = TraceJob(corpus, config.env.prompts, sizes, CAREFUL, policy.seed, "careful traces")
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
    start.stage(
        "copying", warm_start.copy_batches(len(tokenizer), 4 * policy.batch_size, generator), policy.copy_steps, (0.0, 0.0)
    )
    for name, made, steps, progress, until in (
        ("careful", careful, policy.clean_max_steps, (0.0, CLEAN_SHARE), policy.clean_loss),
        ("imperfect", careless, policy.imperfect_steps, (CLEAN_SHARE, 1.0), None),
    ):
        encoded = [encode(trace, frame) for trace in made]
        batches = warm_start.trace_batches(encoded, policy.batch_size, name, policy.seed)
        start.stage(name, batches, steps, progress, until)
    partial = folder.with_suffix(".partial")
    shutil.rmtree(partial, ignore_errors=True)
    network.save_pretrained(partial)
    tokenizer.save_pretrained(partial)
    partial.rename(folder)
    report(f"demo policy: built in {time.monotonic() - started:.0f} s: {folder}")
    return folder
