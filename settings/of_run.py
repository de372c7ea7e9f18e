"""The evaluation that a training run's own configuration asks for: its section ``evaluate``, on its corpus."""

import dataclasses
from pathlib import Path

from sqale_grpo.settings.evaluation import CorpusConfig, EvaluationConfig, EvaluationEnv, LocalConfig, SamplingConfig
from sqale_grpo.settings.keys import Config, RewardConfig
from sqale_grpo.settings.run_folder import run_folder


def run_evaluation_config(config: Config, name: str, model: str | Path) -> EvaluationConfig:
    """The evaluation of ``model`` that lies in RUN/evaluations/NAME, on the same questions whatever the model is.

    NAME is its group too: in tables, the runs of several seeds are one policy before and one after.
    """
    section, corpus = config.evaluate, config.corpus
    env = EvaluationEnv(**dataclasses.asdict(config.env))
    return EvaluationConfig(
        name=name,
        group=name,
        seed=config.seed,
        output=str(run_folder(config) / "evaluations"),
        model=str(model),
        enable_thinking=config.model.enable_thinking,
        questions=section.questions,
        tables=section.tables,
        corpus=CorpusConfig(
            name=corpus.name,
            source=corpus.source,
            prepared=corpus.prepared,
            split=section.split,
            limit=corpus.limit,
            evidence=corpus.evidence,
            demo_tables=corpus.demo_tables,
            demo_rows=corpus.demo_rows,
            demo_schemas=corpus.demo_schemas,
            demo_questions=corpus.demo_questions,
        ),
        sampler=config.sampler,
        env=dataclasses.replace(env, query_seconds=section.query_seconds),
        reward=RewardConfig(config.reward.gold_seconds),
        sampling=SamplingConfig(
            section.temperature, section.top_p, section.top_k, section.max_turn_tokens, section.max_episode_tokens
        ),
        local=LocalConfig(dtype=config.model.weights_dtype, threads=config.train.threads, use_cpu=config.train.use_cpu),
    )
