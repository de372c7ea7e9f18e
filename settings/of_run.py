"""The evaluation that a training run's own configuration asks for: its section ``evaluate``, on its corpus."""

from pathlib import Path

from sqale_grpo.settings.evaluation import EvaluationConfig, LocalConfig
from sqale_grpo.settings.keys import Config
from sqale_grpo.settings.run_folder import run_folder
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
        output=str(run_folder(config) / "evaluations"),
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
