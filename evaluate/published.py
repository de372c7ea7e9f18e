"""The model card's figures, in percent and TFLOPs, and which policy of ours may stand beside which of them."""

from dataclasses import dataclass
from pathlib import Path

import yaml

BENCHMARKS = {"sqale": "SQaLe test", "bird": "BIRD dev", "ehrsql": "EHRSQL"}
UNTRAINED = "Qwen3.5-2B (untrained)"
# The training corpus gives a policy trained from the base checkpoint its name.
TRAINED = {"sqale": "MSQaLe", "bird": "MBIRD", "synsql": "MSynSQL"}
# Last part of a Hub name, of a folder or of a server's name for a model, in lower case.
NAMES = {
    "qwen3.5-2b-grpo-sqale": "MSQaLe",
    "qwen3.5-2b": UNTRAINED,
    "qwen3.5-27b": "Qwen3.5-27B",
    "qwen3.6-27b": "Qwen3.6-27B (untrained)",
}

# Execution accuracy on 300 questions, full schema, by benchmark.
ACCURACY: dict[str, dict[str, float]] = {
    "MSQaLe": {"sqale": 66.3, "bird": 52.3, "ehrsql": 23.7},
    "MBIRD": {"sqale": 54.0, "bird": 54.7, "ehrsql": 23.7},
    "MSynSQL": {"sqale": 50.7, "bird": 44.3, "ehrsql": 13.3},
    UNTRAINED: {"sqale": 38.7, "bird": 19.3, "ehrsql": 8.2},
    "Qwen3.6-27B (untrained)": {"sqale": 76.0, "bird": 69.3, "ehrsql": 55.0},
}


@dataclass(frozen=True)
class Published:
    """An accuracy and, where the card has it, the share of episodes that opened every gold table; percent."""

    accuracy: float
    recall: float | None = None


# SQaLe test questions, by tables in the database.
SCHEMA_SIZE: dict[str, dict[str, Published]] = {
    "MSQaLe": {
        "gold": Published(72.7, 95.3),
        "distractors:32": Published(68.0, 96.7),
        "full": Published(66.3, 89.7),
    },
    "MBIRD": {
        "gold": Published(64.7, 98.7),
        "distractors:32": Published(61.0, 90.7),
        "full": Published(54.0, 85.0),
    },
    "MSynSQL": {
        "gold": Published(59.3, 98.3),
        "distractors:32": Published(52.3, 92.7),
        "full": Published(50.7, 83.3),
    },
}
# SQaLe test questions: literals looked up; of those that the question does not state: looked up, correct value used.
LITERALS: dict[str, dict[str, float]] = {
    "MSQaLe": {"literals_seen": 88, "unstated_literals_seen": 61, "unstated_literals_used": 55},
    "MBIRD": {"literals_seen": 40, "unstated_literals_used": 41},
    "MSynSQL": {"literals_seen": 55, "unstated_literals_used": 39},
    UNTRAINED: {"literals_seen": 35},
}
# 100 moderate SQaLe test questions: accuracy (percent), TFLOPs a question, parameters as the size's name has them (of
# mixture-of-experts models all). Source: the authors' project page, the figure of size against accuracy.
COMPUTE_DIFFICULTY = "moderate"
COMPUTE: dict[str, tuple[float, float, float]] = {
    "MSQaLe": (52.0, 223.9, 2e9),
    "MBIRD": (40.0, 111.7, 2e9),
    "MSynSQL": (33.0, 154.6, 2e9),
    UNTRAINED: (24.0, 168.4, 2e9),
    "Granite-4.1-3B": (21.0, 414.2, 3e9),
    "Llama-3.2-3B": (10.0, 535.4, 3e9),
    "Hunyuan-4B": (36.0, 447.6, 4e9),
    "Qwen2.5-7B": (29.0, 218.9, 7e9),
    "Olmo-3-7B-Instruct": (12.0, 1000.7, 7e9),
    "Olmo-3-7B-Think": (26.0, 246.1, 7e9),
    "Llama-3.1-8B": (30.0, 693.4, 8e9),
    "Qwen3-8B": (54.0, 225.3, 8e9),
    "GLM-4-9B": (27.0, 822.6, 9e9),
    "Qwen3.5-9B": (58.0, 448.9, 9e9),
    "Gemma-3-12B": (39.0, 716.7, 12e9),
    "Mistral-Nemo-12B": (14.0, 1239.2, 12e9),
    "Nemotron-Nano-12B": (45.0, 503.8, 12e9),
    "Qwen3-14B": (54.0, 368.8, 14e9),
    "gpt-oss-20b": (16.0, 1052.4, 20e9),
    "Mistral-Small-24B": (46.0, 1027.2, 24e9),
    "Qwen3.5-27B": (63.0, 1709.9, 27e9),
    "Qwen3-30B-A3B": (51.0, 2886.4, 30e9),
    "Gemma-4-31B": (60.0, 1867.1, 31e9),
    "Nemotron-Super-49B": (53.0, 1388.7, 49e9),
    "Llama-3.3-70B": (49.0, 3154.2, 70e9),
}
# The verdict that a published accuracy was judged by. Cards of the authors' earlier runs name both of BIRD's, and the
# card's 52.3 and 54.7 are their official ones.
VERDICTS = {"bird": "official"}


def verdict(benchmark: str) -> str:
    """The metric of ours under which a benchmark's published accuracy stands."""
    return VERDICTS.get(benchmark, "equivalent")


def published_name(model: str) -> str | None:
    """The card's name for a model: one of its names, or a folder of a run that trained its base model; else None.

    A run is told by the ``config.yaml`` beside its checkpoints: its ``model.path`` and ``corpus.name``.
    """
    known = NAMES.get(last_part(model))
    if known:
        return known
    path = Path(model)
    for folder in (path, path.parent):
        try:
            config = yaml.safe_load((folder / "config.yaml").read_text(encoding="utf-8"))
            base, corpus = str(config["model"]["path"]), config["corpus"]["name"]
        except (OSError, yaml.YAMLError, KeyError, TypeError):
            continue
        return TRAINED.get(corpus) if NAMES.get(last_part(base)) == UNTRAINED else None
    return None


def last_part(model: str) -> str:
    """The last part of a path or a Hub name, in lower case."""
    return model.rstrip("/").rpartition("/")[2].lower()
