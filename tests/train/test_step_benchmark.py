"""The step benchmark at paper shape, made tiny: what it measures on a GPU runs to its end on a CPU."""

import json
import subprocess
import sys

import pytest

from benchmarks import step
from tests.conftest import ROOT

TINY = {
    "vocab_size": 500,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "linear_num_key_heads": 1,
    "linear_num_value_heads": 1,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
}
WORDS = [
    "train.questions_per_update=2",
    "train.candidates=2",
    "train.micro_batch=4",
    "train.use_cpu=true",
    "model.dtype=float32",
    "env.prompts=configs/prompts/demo.json",
    "env.tool_turns=1",
    "rollout.max_turn_tokens=16",
    "rollout.max_episode_tokens=600",
    "corpus.limit=60",
]


def bench(*words: str) -> subprocess.CompletedProcess[str]:
    program = [sys.executable, "benchmarks/step.py", "--paper", *words]
    return subprocess.run(program, cwd=ROOT, capture_output=True, text=True, timeout=500)


@pytest.mark.long
def test_the_paper_shape_is_measured_by_stage(tmp_path):
    shape = [f"shape.{name}={value}" for name, value in TINY.items()]
    done = bench(*shape, *WORDS, f"corpus.prepared={tmp_path}")
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["shape"] == TINY, done.stderr[-3000:]
    measured = result["measured"]
    assert (measured["updates"], measured["device"]) == (1, "cpu") and measured["peak_bytes"] > 1e8
    seconds = measured["seconds"]
    assert all(seconds[stage] > 0 for stage in ("generate", "reference", "forward", "backward", "update"))
    model = sum(seconds[stage] for stage in ("generate", "reference", "forward", "backward"))
    assert abs(measured["other_share"] - (1 - model / seconds["update"])) < 0.01
    holds = measured["other_share"] <= 0.02 and measured["peak_bytes"] <= 80e9
    assert result["limit"] == {"other_share": 0.02, "peak_bytes": 80e9}
    assert result["ok"] == holds and done.returncode == (0 if holds else 1)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--paper", "shape.hiden_size=3"], "shape.hiden_size is unknown; there are vocab_size"),
        (["--paper", "shape.hidden_size"], "shape.hidden_size must be a whole number above 0, not ''"),
        (["--paper", "train.candidate=3"], "did you mean 'train.candidates'"),
        (["train.updates=1"], "train.updates must be 2 at least"),
    ],
)
def test_a_mistake_is_a_sentence(words, says, capsys):
    assert step.main(words) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ") and says in error and error.count("\n") == 1
