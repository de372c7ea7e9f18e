"""``sqale-grpo evaluate CONFIG... [key=value ...] [--dry-run]``: evaluate a model as the configuration says.

Files are merged left to right, overrides last. The same command goes on with an evaluation that was stopped.
``--dry-run`` prints the configuration and what it would do, and loads no model.
"""

import argparse
from pathlib import Path

from rich.console import Console

from sqale_grpo.corpus import open_prepared
from sqale_grpo.corpus.prepared import MARKER
from sqale_grpo.env.files import check_place
from sqale_grpo.evaluate.identity import MARKED_SHARE, digest, missing, read_identity
from sqale_grpo.evaluate.place import check_folder, finished
from sqale_grpo.rollout.policy_path import DEMO, resolve_policy
from sqale_grpo.settings.check import ConfigError
from sqale_grpo.settings.corpora import check_prepared, split_command, split_folder
from sqale_grpo.settings.docs import keys_markdown
from sqale_grpo.settings.evaluation import (
    EVALUATIONS,
    INTRO,
    EvaluationConfig,
    evaluation_folder,
    load_evaluation,
    with_names,
)
from sqale_grpo.settings.files import is_file, read_prompts
from sqale_grpo.settings.load import to_yaml
from sqale_grpo.settings.of_run import as_trained
from sqale_grpo.settings.own import OWN, own_questions
from sqale_grpo.settings.run_folder import CONFIG
from sqale_grpo.settings.sections import CorpusConfig, EnvConfig

MODELS = ("transformers", "vllm", "openai")


def main(arguments: list[str] | None = None) -> int:
    """Play an evaluation. Raises UserError; EvaluationError, whose exit status is 1, where questions failed."""
    options = _parser().parse_intermixed_args(arguments)
    if options.keys:
        print(keys_markdown(EvaluationConfig, INTRO), end="")
        return 0
    files = [text for text in options.inputs if "=" not in text or is_file(text)]
    if not files:
        raise ConfigError("no config file given; start from configs/eval/sqale.yaml or another of that folder")
    config = read_evaluation(files, [text for text in options.inputs if text not in files])
    console = Console()
    read_prompts(config.env.prompts)
    if not options.dry_run or config.corpus.name == OWN:
        check_prepared(*_split(config))
    config = with_names(config, resolve_model(config))
    folder = evaluation_folder(config)
    check_place(folder, "output=", ConfigError)
    check_folder(config, folder)
    if not finished(folder):
        own_questions(config.corpus, config.corpus.split)
    console.print(to_yaml(config), markup=False, highlight=False)
    if options.dry_run:
        console.print(plan_text(config, folder), markup=False, highlight=False, soft_wrap=True)
        return 0
    # Late: a plan and every error above come without torch.
    from sqale_grpo.evaluate.open_backend import check_model
    from sqale_grpo.evaluate.runner import run_evaluation

    if not finished(folder):
        check_model(config)
    run_evaluation(config, folder, console)
    console.print("\n".join(next_lines(config, folder)), markup=False, highlight=False, soft_wrap=True)
    return 0


def next_lines(config: EvaluationConfig, folder: Path) -> list[str]:
    """Where the evaluation lies, and what people do next."""
    lines = [
        *identity_lines(folder),
        f"the evaluation lies in {folder}",
        f"its tables: sqale-grpo evaluate tables {folder}",
    ]
    run = folder.parent.parent
    if folder.parent.name == EVALUATIONS and (run / CONFIG).is_file():
        lines.append(f"the run's page, with this evaluation: sqale-grpo report {run}")
    if config.backend in MODELS:
        lines.append(f"one episode: sqale-grpo evaluate replay {folder}")
    return lines


def identity_lines(folder: Path) -> list[str]:
    """The identity of its figures, and what is missing of the benchmark."""
    about = read_identity(folder)
    if about is None:
        return []
    share, why = missing(about["left_out"])
    lines = [f"identity of its figures: {digest(about)}"]
    if share > MARKED_SHARE:
        lines.append(f"{share:.1%} of the benchmark's questions are missing, and tables say so: {why}")
    return lines


def read_evaluation(files: list[str], overrides: list[str]) -> EvaluationConfig:
    """The evaluation of the command line; on a run's own corpus, what it does not say is as in the run."""
    config = load_evaluation(files, overrides)
    usual = as_trained(resolve_model(config), config.corpus.name)
    return load_evaluation(files, overrides, usual) if usual else config


def resolve_model(config: EvaluationConfig) -> str:
    """What ``config.model`` leads to: the demo's policy, a run's newest checkpoint, a folder, or a name."""
    return str(resolve_policy(config.model)) if config.backend in ("transformers", "vllm") else config.model


def plan_text(config: EvaluationConfig, folder: Path) -> str:
    """What the evaluation would do, in lines."""
    place = split_folder(*_split(config))
    questions = config.questions
    if (place / MARKER).exists():
        prepared = len(open_prepared(place))
        questions = min(questions, prepared)
        corpus = f"{prepared:,} questions in {place}"
    elif config.corpus.source is not None or config.corpus.name == DEMO:
        own = own_questions(config.corpus, config.corpus.split)
        questions = min(questions, own.total()) if own else questions
        corpus = f"{place} is not there yet; it is prepared from {config.corpus.source or 'the generator'}"
    else:
        command = split_command(*_split(config))
        corpus = f"{place} is not there yet; prepare it first:\n  {command}"
    episodes = questions * config.candidates
    most = episodes * config.sampling.max_episode_tokens
    state = "finished" if finished(folder) else "to be gone on with" if folder.exists() else "new"
    return "\n".join(
        (
            f"corpus: {corpus}",
            f"episodes: {questions} questions x {config.candidates} = {episodes:,}, schema {config.schema}",
            f"tokens: at most {most:,} (every episode at its budget of {config.sampling.max_episode_tokens:,})",
            f"model: {config.model}, backend {config.backend}",
            f"folder: {folder} ({state})",
        )
    )


def _split(config: EvaluationConfig) -> tuple[CorpusConfig, str, float, int, EnvConfig]:
    """What names the prepared folder of an evaluation."""
    return config.corpus, config.corpus.split, config.env.query_seconds, config.reward.counter_databases, config.env


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="sqale-grpo evaluate",
        description="Evaluate a model. `sqale-grpo evaluate tables RUN...` prints the tables of evaluations, "
        "`sqale-grpo evaluate replay RUN --episode ID` one episode.",
    )
    parser.add_argument("inputs", nargs="*", metavar="CONFIG | key=value", help="YAML files, then overrides")
    parser.add_argument("--dry-run", action="store_true", help="print the configuration and the plan, and stop")
    parser.add_argument("--keys", action="store_true", help="print every key with its default, source and meaning")
    return parser
