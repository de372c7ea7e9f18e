"""An update's wall time by stage: what generation, forward and backward leave for everything else.

    python benchmarks/step.py [section.key=value ...]
    python benchmarks/step.py --paper [shape.NAME=N ...] [section.key=value ...]

The first is the demo with a few updates, on its two processes. Limit: "other" - databases, tools, reward, record,
optimizer, logging - at most 15% of an update, since the cores are busy with both processes' tools too. The seconds of
an update are shown and not judged: the processor decides them, and no floor of the same run says what they should be.
The goal that they serve is the demo's, 4 minutes on two idle cores (docs/demo.md).

The second trains configs/recipe.yaml from random weights of Qwen3.5-2B's shape on the generated corpus: such a policy
never ends a turn, so every episode grows to its budget of 12,288 tokens. For one GPU; vLLM samples no random weights
of ours, so transformers generates. ``shape.`` words make the model smaller. Limits: "other" at most 2%, and a peak of
80 GB. Medians, the first update left out; of "other" the median of each update's own share, since the medians of the
stages belong to different updates and do not add up to one.
"""

import json
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from sqale_grpo.settings.check import ConfigError
from sqale_grpo.settings.load import load_config

ROOT = Path(__file__).resolve().parent.parent
UPDATES, QUESTIONS, PAPER_UPDATES = 4, 8, 2
OTHER_SHARE = 0.15
PAPER_OTHER_SHARE, PAPER_BYTES = 0.02, 80e9
MODEL = ("generate", "sync", "reference", "forward", "backward")
# Qwen3.5-2B's language model; every fourth layer is full attention.
SHAPE = {
    "vocab_size": 248_320,
    "hidden_size": 2_048,
    "intermediate_size": 6_144,
    "num_hidden_layers": 24,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 256,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 16,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
}


def main(words: list[str]) -> int:
    """Print one JSON line; 0 when the limits hold, 2 for a mistake in the words."""
    try:
        return benchmark(words)
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def benchmark(words: list[str]) -> int:
    """Choose by ``--paper``, measure in a folder that goes afterwards, and hold the figures to the limits."""
    with tempfile.TemporaryDirectory() as folder:
        own = [f"output={folder}", "name=step", "train.save_updates=1000"]
        if "--paper" in words:
            return paper(Path(folder), own, [word for word in words if word != "--paper"])
        measured = demo(Path(folder), [*own, f"train.updates={UPDATES}", f"evaluate.questions={QUESTIONS}", *words])
    ok = measured["other_share"] <= OTHER_SHARE
    print(json.dumps({"benchmark": "step", "measured": measured, "limit": {"other_share": OTHER_SHARE}, "ok": ok}))
    return 0 if ok else 1


def demo(folder: Path, words: list[str]) -> dict[str, Any]:
    """The demo in processes of its own: it starts the second one itself."""
    config = load_config([ROOT / "configs" / "demo.yaml"], words)
    check_updates(config)
    words = [sys.executable, "-m", "sqale_grpo.demo", str(ROOT / "configs" / "demo.yaml"), *words]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        raise ConfigError(f"the demo failed: {done.stderr.strip()[-500:]}")
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024  # of the largest process
    return summary(folder / f"{config.name}-seed{config.seed}", "cpu", peak)


def paper(folder: Path, own: list[str], words: list[str]) -> int:
    """The recipe from random weights."""
    shape = dict(SHAPE)
    for word in (word for word in words if word.startswith("shape.")):
        name, _, value = word.removeprefix("shape.").partition("=")
        if name not in shape:
            raise ConfigError(f"shape.{name} is unknown; there are {', '.join(shape)}")
        if not value.isdigit() or not int(value):
            raise ConfigError(f"shape.{name} must be a whole number above 0, not {value!r}")
        shape[name] = int(value)
    own += [f"model.path={folder / 'policy'}", "corpus.name=demo", "corpus.source=null", "corpus.difficulties=[]"]
    own += ["rollout.backend=transformers", f"train.updates={PAPER_UPDATES}", "train.preflight=false"]
    overrides = [*own, *(word for word in words if not word.startswith("shape."))]
    config = load_config([ROOT / "configs" / "recipe.yaml"], overrides)
    random_policy(folder / "policy", shape)
    measured = measure(config)
    ok = measured["other_share"] <= PAPER_OTHER_SHARE and measured["peak_bytes"] <= PAPER_BYTES
    limits = {"other_share": PAPER_OTHER_SHARE, "peak_bytes": PAPER_BYTES}
    print(json.dumps({"benchmark": "step --paper", "shape": shape, "measured": measured, "limit": limits, "ok": ok}))
    return 0 if ok else 1


def random_policy(folder: Path, shape: dict[str, int]) -> None:
    """A Qwen3.5 text model of ``shape`` with random weights, and a small tokenizer with Qwen's chat layout.

    The tokenizer knows a few hundred of the model's tokens; the others read as nothing.
    """
    import torch
    from transformers import Qwen3_5ForCausalLM, Qwen3_5TextConfig

    from sqale_grpo.demo.model import train_tokenizer

    text = (ROOT / "env" / "prompts.json").read_text(encoding="utf-8")
    tokenizer = train_tokenizer([text], 420)
    layers = ["full_attention" if n % 4 == 3 else "linear_attention" for n in range(shape["num_hidden_layers"])]
    config = Qwen3_5TextConfig(
        **shape,
        layer_types=layers,
        tie_word_embeddings=True,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
    )
    torch.manual_seed(0)
    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
            model = Qwen3_5ForCausalLM(config)
    finally:
        torch.set_default_dtype(torch.float32)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def measure(config: Any) -> dict[str, Any]:
    """Train as ``config`` says: median seconds by stage, share of what is no model's work, tokens, peak memory."""
    import torch

    from sqale_grpo.train.run import run

    check_updates(config)
    cuda = torch.cuda.is_available() and not config.train.use_cpu
    if cuda:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    finished = run(config)
    peak = torch.cuda.max_memory_reserved() if cuda else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return summary(finished.folder, torch.cuda.get_device_name() if cuda else "cpu", peak)


def check_updates(config: Any) -> None:
    """ConfigError where no update is left to measure."""
    if config.train.updates < 2:
        raise ConfigError("train.updates must be 2 at least here: the first update is left out")


def summary(folder: Path, device: str, peak: int) -> dict[str, Any]:
    """Medians over the updates of the run in ``folder`` but the first."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()][1:]
    stages = sorted(key for key in lines[0] if key.startswith("seconds/"))
    return {
        "updates": len(lines),
        "device": device,
        "seconds": {
            stage.removeprefix("seconds/"): round(statistics.median(line[stage] for line in lines), 3)
            for stage in stages
        },
        "other_share": round(statistics.median(map(other_share, lines)), 4),
        "episode_tokens": statistics.median(line["episode_tokens"] for line in lines),
        "peak_bytes": peak,
    }


def other_share(line: dict[str, float]) -> float:
    """The share of one update's seconds that is no model's work."""
    return 1 - sum(line.get(f"seconds/{stage}", 0.0) for stage in MODEL) / line["seconds/update"]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
