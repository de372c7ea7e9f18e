"""Evaluations of a training run: the one that its section ``evaluate`` asks for, and what any other takes from it."""

from pathlib import Path
from typing import Any

from sqale_grpo.settings.check import ConfigError
from sqale_grpo.settings.evaluation import EVALUATIONS, EvaluationConfig, LocalConfig
from sqale_grpo.settings.keys import Config
from sqale_grpo.settings.load import flatten, load_config
from sqale_grpo.settings.run_folder import CONFIG, run_folder
from sqale_grpo.settings.sections import CorpusConfig, EvaluationEnv, RewardConfig, SamplingConfig, as_section


def run_evaluation_config(config: Config, name: str, model: str | Path) -> EvaluationConfig:
    """The evaluation of ``model`` that lies in RUN/evaluations/NAME, on the same questions whatever the model is.

    NAME is its group too: in tables, the runs of several seeds are one policy before and one after. Questions are of
    all difficulties, also where the run trains on some.
    """
    asked = config.evaluate
    return EvaluationConfig(
        name=name,
        group=name,
        seed=config.seed,
        output=str(run_folder(config) / EVALUATIONS),
        model=str(model),
        enable_thinking=config.model.enable_thinking,
        questions=asked.questions,
        schema=asked.schema,
        corpus=as_section(CorpusConfig, config.corpus, split=asked.split, difficulties=[]),
        sampler=config.sampler,
        env=as_section(EvaluationEnv, config.env, query_seconds=asked.query_seconds),
        reward=as_section(RewardConfig, config.reward, counter_databases=config.copies(asked.split)),
        sampling=as_section(SamplingConfig, asked),
        local=LocalConfig(dtype=config.model.weights_dtype, threads=config.train.threads, use_cpu=config.train.use_cpu),
    )


OF_TRAINING = (
    "corpus.source",
    "corpus.prepared",
    "corpus.evidence",
    "corpus.phrasing",
    "reward.gold_seconds",
)  # keys of both
OF_ITS_EVALUATION = ("max_turn_tokens", "max_episode_tokens")
OF_THE_MACHINE = ("env.workers", "env.query_seconds")


def as_trained(model: str | Path, corpus: str) -> dict[str, Any]:
    """What an evaluation on the corpus that a checkpoint was trained on need not say: dotted keys and their values.

    Source, prompts, turns, sizes of results, budgets of tokens, and what it computes on are those of the run. Nothing
    for any other model, and for a run whose configuration is of another version.
    """
    saved = Path(model).parent / CONFIG
    try:
        config = load_config([saved]) if Path(model).is_dir() and saved.is_file() else None
    except ConfigError:
        config = None
    if config is None or config.corpus.name != corpus:
        return {}
    keys = flatten(config)
    kept = {name: keys[name] for name in keys if name in OF_TRAINING or name.startswith(("env.", "sampler."))}
    kept = {name: value for name, value in kept.items() if name not in OF_THE_MACHINE}
    kept |= {f"sampling.{name}": keys[f"evaluate.{name}"] for name in OF_ITS_EVALUATION}
    return kept | {
        "enable_thinking": config.model.enable_thinking,
        "local.dtype": config.model.dtype,
        "local.threads": config.train.threads,
        "local.use_cpu": config.train.use_cpu,
    }
