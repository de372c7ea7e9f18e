"""What is checked before a model is loaded, so that a mistake costs seconds and says what to do. Imports no torch."""

import os
from importlib.util import find_spec

from corpus import PreparedCorpus
from env.prompts import load_prompts
from train.config import Config
from train.config_check import ConfigError
from train.policy_path import is_adapter, resolve_policy
from train.shape import check_corpus_size


def check_prompts(config: Config) -> None:
    """ConfigError where ``env.prompts`` names no file of prompts."""
    try:
        load_prompts(config.env.prompts)
    except (OSError, ValueError) as error:
        raise ConfigError(f"env.prompts: {error}") from error


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
    """ConfigError where a tracker of ``train.log_to`` is not installed."""
    for name in config.train.log_to:
        if find_spec(name) is None:
            raise ConfigError(f"train.log_to names {name}, which is not installed; run: pip install {name}")


def check_model_path(config: Config) -> None:
    """ConfigError where ``model.path`` is a folder that holds no policy, or adapters alone."""
    path = config.model.path
    if is_adapter(resolve_policy(path)):
        raise ConfigError(
            f"model.path={path} holds LoRA adapters, which a reference policy cannot be loaded from; merge them into "
            "their model first: python scripts/export.py"
        )


def check_databases(corpus: PreparedCorpus) -> None:
    """CorpusError where the file of a question's database is gone: a run would notice it only hours later."""
    for db_id in dict.fromkeys(corpus.column("db_id")):
        corpus.database(db_id)


def eligible_questions(config: Config, corpus: PreparedCorpus) -> list[int]:
    """Indices, rising, of the questions to train on: of the wanted difficulties, with a stable gold result.

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
    check_corpus_size(config, len(eligible), str(corpus.directory))
    return eligible
