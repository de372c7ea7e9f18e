"""Updates with colocated vLLM: episodes and importance ratios are right, and what is learned reaches the engine."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from sqale_grpo.env.sandbox import Sandbox
from sqale_grpo.rollout.policy import load_policy
from sqale_grpo.rollout.record import read_episodes
from sqale_grpo.rollout.requests import play_requests
from sqale_grpo.rollout.vllm_engine import VllmEngine
from sqale_grpo.settings.keys import ModelConfig
from sqale_grpo.settings.load import load_config
from sqale_grpo.settings.run_folder import EPISODES
from sqale_grpo.train.run import run
from tests.vllm.taught import PROMPTS, QUESTIONS, apart, episodes, shop_database, taught_policy

MEAN = 0.04
UPDATES = 3


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("work")
    source = folder / "source"
    source.mkdir()
    shop_database(source / "shop.sqlite")
    lines = [json.dumps({"db_id": "shop", "question": question, "sql": sql}) for question, sql in QUESTIONS.items()]
    (source / "questions.jsonl").write_text("\n".join(lines))
    # Not quite by heart: candidates differ, so that there is something to learn from.
    taught_policy(folder / "policy", source / "shop.sqlite", until=0.1)
    return folder


def words(work, *more):
    """The overrides of a run over configs/demo.yaml."""
    return [
        "name=run",
        f"output={work / 'runs'}",
        f"model.path={work / 'policy'}",
        "corpus.name=jsonl",
        f"corpus.source={work / 'source'}",
        f"corpus.prepared={work / 'prepared'}",
        f"env.prompts={PROMPTS}",
        "rollout.backend=vllm_colocate",
        "train.questions_per_update=2",
        "train.candidates=4",
        "train.micro_batch=4",
        "train.learning_rate=3e-3",
        f"train.updates={UPDATES}",
        "train.save_updates=3",
        "train.anchor_updates=2",
        "curriculum.gate_updates=0",
        *more,
    ]


def settings(work, *more):
    return load_config(["configs/demo.yaml"], words(work, *more))


@pytest.fixture(scope="module")
def finished(work):
    return run(settings(work))


def check_updates(finished):
    """Metrics and records of a run of UPDATES updates."""
    lines = [json.loads(line) for line in (finished.folder / "metrics.jsonl").read_text().splitlines()]
    updates = [line for line in lines if "loss" in line]
    assert len(updates) == UPDATES
    for line in updates:
        assert line["sampling/logp_difference"] < MEAN
        assert 0.5 < line["importance/sequence_ratio_mean"] < 2.0
        # None is over the cap, so what TRL multiplies the loss by is the ratio itself.
        for figure in ("min", "mean", "max"):
            expected = pytest.approx(line[f"importance/sequence_ratio_{figure}"], rel=1e-4)
            assert line[f"sampling/importance_sampling_ratio/{figure}"] == expected
        assert line["importance/masked_ratio_share"] == 0.0 and line["importance/token_kl"] < 0.01
        assert line["importance/sequences_over_cap"] == 0.0
        assert line["seconds/sync"] > 0
    records = read_episodes(finished.folder / EPISODES).to_pylist()
    assert len(records) == UPDATES * 8
    assert any(call["tool"] == "run_query" for record in records for turn in record["turns"] for call in turn["calls"])
    assert any(record["tier"] == "equivalent" for record in records)


def check_weights(finished, work):
    """What the engine samples with, after a last transfer, is what was trained and no longer what it began with."""
    trainer = finished.trainer
    trainer.vllm_generation.sync_weights()
    experiment = trainer.experiment
    engine = VllmEngine(trainer.vllm_generation.llm, experiment.sampling, experiment.frame.stop_ids)
    with Sandbox(work / "source" / "shop.sqlite") as sandbox, ThreadPoolExecutor(2) as pool:
        made = episodes(work / "source" / "shop.sqlite", 6, sandbox)
        played = play_requests(engine, experiment.frame, made, list(range(6)), experiment.sampling, pool)
    trained = trainer.accelerator.unwrap_model(trainer.model).eval()
    untrained = load_policy(ModelConfig(weights_dtype="float32"), work / "policy").eval()
    assert apart(trained, played) < MEAN
    assert apart(untrained, played) > 2 * MEAN


def test_updates_are_whole(finished):
    check_updates(finished)


def test_the_engine_has_the_trained_weights(finished, work):
    check_weights(finished, work)
