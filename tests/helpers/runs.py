"""Small training runs that the tests compare: their configuration, their places, and what they left behind."""

import json
import os
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from sqale_grpo.rollout.record import read_episodes
from tests.helpers.launch import Starter

# From the demo's policy: it writes calls, many of which parse, so rewards differ within groups and gradients are not 0.
SMALL = [
    "rollout.temperature=0.7",
    "train.questions_per_update=3",
    "train.candidates=4",
    "train.micro_batch=4",
    "train.save_updates=1",
    "train.keep_checkpoints=10",
    "train.anchor_updates=2",
    "train.beta=0.1",
    "curriculum.warmup_updates=1",
    "curriculum.ramp_updates=2",
    "curriculum.gate_updates=3",
    "rollout.max_episode_tokens=700",
]
SHORT = ["env.tool_turns=2", "rollout.max_turn_tokens=64"]  # episodes of a third of the length


def arguments(work: Path, name: str, *more: str) -> list[str]:
    """The command line of a small run in ``work``."""
    places = [f"name={name}", f"output={work / 'runs'}", f"corpus.prepared={work / 'prepared'}"]
    threads = f"train.threads={os.environ.get('TEST_THREADS', '1')}"
    return ["configs/demo.yaml", *places, *SMALL, threads, *more]


def train(starter: Starter, work: Path, name: str, *more: str) -> Path:
    """Run to the end; the run's folder."""
    log = work / f"{name}.log"
    status = starter.wait(starter.start(arguments(work, name, *more), log))
    assert status == 0, log.read_text()[-5000:]
    return work / "runs" / name


def metrics(folder: Path) -> list[dict[str, Any]]:
    """Every update's metrics except for the times."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    timed = ("seconds/", "step_time")
    return [{key: value for key, value in line.items() if not key.startswith(timed)} for line in lines]


def episodes(folder: Path) -> list[dict[str, Any]]:
    """Every episode of the run."""
    return read_episodes(folder / "episodes").to_pylist()


def assert_same_tensors(one: Path, other: Path) -> None:
    """Two safetensors files hold the same names and bits."""
    a, b = load_file(one), load_file(other)
    assert a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)
