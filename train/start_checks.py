"""What is checked before a model is loaded, so that a mistake costs seconds and says what to do. Imports no torch.

What a run reads beside its configuration: its fingerprints lie in the run's folder, so that a resume meets the same.

A configuration names files. When one of them changes between a stop and a resume, the names are still equal and the
experiment is another one.
"""

import dataclasses
import hashlib
import json
import os
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from sqale_grpo.corpus import PreparedCorpus
from sqale_grpo.corpus.prepared import INDEX
from sqale_grpo.env.files import write_whole
from sqale_grpo.rollout.policy_path import is_adapter, resolve_policy
from sqale_grpo.settings.check import ConfigError
from sqale_grpo.settings.files import read_prompts
from sqale_grpo.settings.keys import Config
from sqale_grpo.settings.run_folder import run_folder
from sqale_grpo.settings.shape import check_corpus_size, is_main_process
from sqale_grpo.train.doctor import existing, template_row, trackers
from sqale_grpo.train.memory import GIB, checkpoint_bytes
from sqale_grpo.train.model_shape import is_assumed, model_shape
from sqale_grpo.train.preflight.table import CheckRow


def check_built(config: Config) -> None:
    """ConfigError for what the configuration or the launch can say and this version cannot do yet."""
    zero_stage = os.environ.get("ACCELERATE_DEEPSPEED_ZERO_STAGE")
    fsdp = os.environ.get("ACCELERATE_USE_FSDP") == "true"
    if fsdp and os.environ.get("FSDP_VERSION", "1") != "2":
        raise ConfigError("the launch asks for FSDP 1; launch with configs/accelerate/fsdp2.yaml")
    if fsdp and config.train.use_cpu:
        raise ConfigError("FSDP needs GPUs: accelerate ignores it on a CPU; launch with configs/accelerate/ddp.yaml")
    if zero_stage == "3" and config.model.lora_rank and config.model.weights_dtype != "float32":
        raise ConfigError(
            "ZeRO-3 gathers weights of one number format alone, and LoRA's are float32; set model.weights_dtype=float32"
        )


def check_trackers(config: Config) -> None:
    """ConfigError where a tracker of ``train.log_to`` is not installed, or would ask for a key."""
    for name in config.train.log_to:
        if find_spec(name) is None:
            raise ConfigError(f"train.log_to names {name}, which is not installed; run: pip install {name}")
    _refuse(trackers(config))


def check_template(config: Config, tokenizer: Any) -> None:
    """ConfigError where the policy's template cannot render an episode."""
    _refuse(template_row(tokenizer, config.model.enable_thinking))


def _refuse(row: CheckRow) -> None:
    """ConfigError for a row of the examination that failed."""
    if row.state == "failed":
        raise ConfigError(f"{row.name}: {row.found}; {row.mend}")


def check_model_path(config: Config) -> None:
    """ConfigError where ``model.path`` is a folder that holds no policy, or adapters alone."""
    path = config.model.path
    if is_adapter(resolve_policy(path)):
        raise ConfigError(
            f"model.path={path} holds LoRA adapters, which a reference policy cannot be loaded from; merge them into "
            "their model first: sqale-grpo export"
        )


def check_room(config: Config, sharding: str) -> None:
    """ConfigError where the run's disk has no room for a single checkpoint: a run would notice it at its first one.

    ``sharding``: what the launch shards (``train.launch.sharding``). A model whose size is not known passes.
    """
    path = resolve_policy(config.model.path)
    shape = model_shape(path, config.model.lora_targets)
    if is_assumed(shape, path):
        return
    size = checkpoint_bytes(config, shape, sharding)
    folder = existing(run_folder(config))
    free = shutil.disk_usage(folder).free
    if free < size:
        raise ConfigError(
            f"{folder} has {free / GIB:,.1f} GiB free, and one checkpoint takes {size / GIB:,.1f}: set output=... to a "
            "larger disk"
        )


def check_databases(corpus: PreparedCorpus) -> None:
    """CorpusError where the file of a question's database is gone: a run would notice it only hours later."""
    for db_id in dict.fromkeys(corpus.column("db_id")):
        corpus.database(db_id)


def eligible_questions(config: Config, corpus: PreparedCorpus) -> list[int]:
    """Indices, rising, of the questions to train on: of the wanted difficulties, with a stable gold result.

    Where ``corpus.max_luck`` is given, a question must not take more of its wrong mutants for right than that.

    ConfigError where fewer are left than one update takes.
    """
    wanted = set(config.corpus.difficulties)
    causes, difficulties = corpus.unstable(), corpus.column("difficulty")
    found = sorted(set(difficulties))
    if wanted and not wanted & set(found):
        raise ConfigError(
            f"no question of {corpus.directory} has one of corpus.difficulties={config.corpus.difficulties}; "
            + (f"there are {', '.join(found)}" if found != [""] else "it names none: set corpus.difficulties=[]")
        )
    eligible = [
        index
        for index, (cause, difficulty) in enumerate(zip(causes, difficulties, strict=True))
        if (config.corpus.include_unstable or not cause) and (not wanted or difficulty in wanted)
    ]
    if config.corpus.max_luck is not None:
        luck = corpus.luck(config.reward.counter_databases)
        eligible = [index for index in eligible if luck[index] <= config.corpus.max_luck]
    check_corpus_size(config, len(eligible), str(corpus.directory))
    return eligible


FILE = "inputs.json"


def input_digests(config: Config, corpus: PreparedCorpus) -> dict[str, str]:
    """Digest of each input's content: every word of the prompts, every row of the prepared corpus' index.

    Rows and not bytes: the same questions, prepared in other steps, may lie in another file. Where only what the run
    draws is prepared, the source counts and not the rows: a run that is extended draws more of it.
    """
    prompts = json.dumps(dataclasses.asdict(read_prompts(config.env.prompts)), sort_keys=True)
    rows = hashlib.blake2b(digest_size=16)
    if corpus.plan is not None:
        started = {name: value for name, value in corpus.plan.items() if name != "updates"}
        rows.update(json.dumps([corpus.source, started], sort_keys=True).encode())
        return {"prompts": hashlib.blake2b(prompts.encode(), digest_size=16).hexdigest(), "corpus": rows.hexdigest()}
    for batch in pq.ParquetFile(corpus.directory / INDEX).iter_batches(4_096):
        for row in batch.to_pylist():
            rows.update(json.dumps(row, sort_keys=True).encode())
    return {"prompts": hashlib.blake2b(prompts.encode(), digest_size=16).hexdigest(), "corpus": rows.hexdigest()}


def check_inputs(config: Config, corpus: PreparedCorpus, folder: Path, resume: bool) -> None:
    """Write the digests where a run begins; ConfigError where one that is resumed began with other content."""
    path, now = folder / FILE, input_digests(config, corpus)
    if resume and path.exists():
        began = json.loads(path.read_text(encoding="utf-8"))
        changed = [name for name, digest in now.items() if began.get(name, digest) != digest]
        if changed:
            places = {"prompts": f"env.prompts={config.env.prompts}", "corpus": str(corpus.directory)}
            named = " and ".join(f"the {name} ({places[name]})" for name in changed)
            raise ConfigError(
                f"{named} changed since the run in {folder} began; restore what was there, or set "
                "another name=... to start a new run"
            )
    elif is_main_process():
        write_whole(path, json.dumps(now, indent=2))
