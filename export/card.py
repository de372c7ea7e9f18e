"""The model card of an export, made from its run: recipe, data, curves, evaluations, limits, citation."""

import platform
from importlib import metadata
from pathlib import Path
from typing import Any

import yaml

from sqale_grpo.agent.bundle import NAME
from sqale_grpo.env.markdown import markdown_table
from sqale_grpo.export.card_evaluations import evaluations, model_index, policy, update_of
from sqale_grpo.export.curves import draw
from sqale_grpo.export.weights import WeightsReport
from sqale_grpo.rollout.record import METRICS, read_metrics
from sqale_grpo.settings.keys import Config
from sqale_grpo.settings.load import known_keys

CURVES = "curves.svg"
LICENCE = "apache-2.0"
# The keys of the card's table of hyperparameters, by what it calls them.
RECIPE = {
    "Initial policy": "model.path",
    "LoRA rank (0: every weight of the language model)": "model.lora_rank",
    "Updates": "train.updates",
    "Questions an update": "train.questions_per_update",
    "Candidates a question": "train.candidates",
    "Learning rate": "train.learning_rate",
    "Loss": "train.loss_type",
    "Loss divisor": "train.loss_constant",
    "Clip, low": "train.clip_low",
    "Clip, high": "train.clip_high",
    "KL coefficient": "train.beta",
    "Updates between two re-anchors of the reference": "train.anchor_updates",
    "Tables of a training database, from": "sampler.min_tables",
    "… to": "sampler.max_tables",
    "Tool turns before the final turn": "env.tool_turns",
    "Failed queries in a row before the final turn": "env.error_cap",
    "Updates with a submit gate": "curriculum.gate_updates",
    "Length curriculum, strength": "curriculum.strength",
    "Tokens of an episode": "rollout.max_episode_tokens",
    "Sampling temperature in training": "rollout.temperature",
    "Seed": "seed",
}
# What the Hub calls the corpora that it holds.
DATASETS = {
    "sqale": ["trl-lab/SQaLe-2-text-to-SQL-Queries", "trl-lab/SQaLe-2-text-to-SQL-Schemas"],
    "synsql": ["seeklhy/SynSQL-2.5M"],
    "spider": ["xlangai/spider"],
}
FRAMEWORKS = ("sqale-grpo", "trl", "transformers", "torch", "tokenizers", "datasets", "vllm")
CITATION = """\
@misc{wolff2026sqale,
  title  = {{SQaLe}: A Large Realistic Dataset to Empower Small Specialised Text-to-{SQL} Models},
  author = {Wolff, Cornelius and Gomm, Daniel and Hulsebos, Madelon},
  year   = {2026}
}"""


def write_card(out: Path, run: Path, checkpoint: Path, config: Config, weights: WeightsReport) -> None:
    """Write ``README.md`` and the curves into the export's folder ``out``."""
    metrics, _ = read_metrics(run / METRICS)
    update = update_of(checkpoint)
    shown = metrics[:update] if update else metrics
    if shown:
        (out / CURVES).write_text(draw(shown), encoding="utf-8")
    text = "\n\n".join(
        part.strip("\n")
        for part in (
            _front(config, run, checkpoint),
            _summary(config, update, weights),
            QUICKSTART if config.model.enable_thinking else QUICKSTART.replace("thinking enabled", "thinking disabled"),
            _training(config, shown),
            evaluations(run),
            LIMITS,
            _versions(),
            f"## Citation\n\nThe method, the data and the environment are described in:\n\n```bibtex\n{CITATION}\n```",
        )
        if part
    )
    (out / "README.md").write_text(text + "\n", encoding="utf-8")


def _front(config: Config, run: Path, checkpoint: Path) -> str:
    """The Hub's metadata. A base that is a folder of this machine has no name there."""
    front: dict[str, Any] = {"license": LICENCE, "library_name": "transformers", "pipeline_tag": "text-generation"}
    if on_hub(config.model.path):
        front["base_model"] = config.model.path
    if config.corpus.name in DATASETS:
        front["datasets"] = DATASETS[config.corpus.name]
    front |= {"language": ["en"], "tags": ["text-to-sql", "agent", "grpo", "sqlite"]}
    if index := model_index(config.name, run, checkpoint):
        front["model-index"] = index
    return f"---\n{yaml.safe_dump(front, sort_keys=False, allow_unicode=True, width=1_000)}---"


def on_hub(base: str) -> bool:
    """Whether an initial policy is a name on the Hub."""
    return base.count("/") == 1 and not Path(base).exists() and not base.startswith((".", "~"))


def _summary(config: Config, update: int, weights: WeightsReport) -> str:
    kept = f", {weights.kept} from the initial policy" if weights.kept else ""
    return (
        f"# {config.name}\n\nAn agent that answers questions over SQLite databases: it looks around with tools, then "
        f"submits a query. Trained from {_base(config)} with GRPO on multi-turn episodes over live databases"
        f"{f', {update:,} updates' if update else ''}. {weights.parameters:,} parameters: {weights.trained} tensors "
        f"from the checkpoint{kept}. `training_config.yaml` holds every setting of the run."
    )


def _base(config: Config) -> str:
    base = config.model.path
    return f"[`{base}`](https://huggingface.co/{base})" if on_hub(base) else f"`{policy(base)}`"


QUICKSTART = f"""\
## Quickstart

```bash
pip install vllm        # or: pip install torch transformers, and add --backend transformers
python {NAME} --model . --db shop.sqlite --question "How many orders are late?" --trace
python {NAME} --model NAME --backend openai --url http://HOST:8000/v1 --db shop.sqlite --question TEXT   # a server
```

```python
from {NAME.removesuffix(".py")} import SQaLeAgent, vllm_generate

agent = SQaLeAgent(*vllm_generate("."))
episode = agent.run("How many orders are late?", "shop.sqlite")
print(episode["sql"], episode["ended_by"])
```

`{NAME}` is the loop of training in one file: the same prompts, tools, turn budget and final-answer fallback. It opens
the database read-only. In a loop of your own: take `SYSTEM_PROMPT` and `USER_TEMPLATE` from there as they are, keep
thinking enabled, return results as the next user turn with the remaining budget, and append every completion to the
prompt instead of building the conversation anew, since the chat template would drop the earlier reasoning.
"""

LIMITS = """\
## Intended use and limits

It answers questions over SQLite databases through tools; a schema pasted into one prompt is another setting. Only text
and only SQLite were trained. Its SQL runs against your data: give it read-only access, as the agent does. An answer
that executes can still be wrong."""


def _training(config: Config, metrics: list[dict[str, Any]]) -> str:
    values = {name: _value(_key(config, name)) for name in RECIPE.values() if name in known_keys()}
    values["model.path"] = _base(config)
    rows = [[label, values[name]] for label, name in RECIPE.items() if name in values]
    text = "## Training\n\n" + markdown_table(["Setting", "Value"], rows)
    text += f"\n\nCorpus: `{config.corpus.name}`, split `{config.corpus.split}`"
    bands = ", ".join(config.corpus.difficulties)
    text += f", difficulty bands {bands}." if bands else "."
    if not metrics:
        return text
    ends = [metrics[0], metrics[-1]]
    names = ("reward", "equivalent_rate", "executable_rate", "parsable_rate", "invalid_rate", "rounds", "tool_calls")
    table = [[name, *(f"{line[name]:.3f}" for line in ends)] for name in names if name in ends[0] and name in ends[1]]
    heads = ["In training", *(f"update {line['update'] + 1}" for line in ends)]
    return f"{text}\n\n![curves of the run]({CURVES})\n\n{markdown_table(heads, table)}"


def _versions() -> str:
    """What the card was written with: a run's own packages, unless it was moved."""
    found = [[name, version] for name in FRAMEWORKS if (version := _version(name))]
    found.append(["Python", platform.python_version()])
    table = markdown_table(["Package", "Version"], found)
    return f"## Framework versions\n\nOf the environment in which this export was made:\n\n{table}"


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _key(config: Config, dotted: str) -> Any:
    value: Any = config
    for part in dotted.split("."):
        value = getattr(value, part)
    return value


def _value(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
