"""Updates with a vLLM server: episodes of whole turns, and what is learned reaches the server.

Not shown here: TRL's transport of the weights, which is NCCL between GPUs. A file stands in its place
(``server_extension``); everything above it is what a run does.
"""

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from sqale_grpo.env.sandbox import Sandbox
from sqale_grpo.rollout.http import ServerError
from sqale_grpo.rollout.policy import load_policy
from sqale_grpo.rollout.record import read_episodes
from sqale_grpo.rollout.requests import play_requests
from sqale_grpo.rollout.vllm_server import ask, server_engine
from sqale_grpo.settings.keys import ModelConfig
from sqale_grpo.settings.run_folder import EPISODES
from sqale_grpo.train.backend_check import check_backend
from sqale_grpo.train.run import run
from tests.conftest import ROOT
from tests.vllm.server_run import weights_by_file
from tests.vllm.taught import apart, episodes
from tests.vllm.test_training import MEAN, UPDATES, settings, words, work  # noqa: F401

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="the stand-in transport is the CPU's")


@pytest.fixture(scope="module")
def server(work):  # noqa: F811
    # What a model's authors recommend must not change what is sampled: a server applies it where a request is silent.
    place = work / "policy" / "generation_config.json"
    place.write_text(json.dumps({**json.loads(place.read_text()), "repetition_penalty": 1.5}))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(work / "policy")]
    command += ["--host", "127.0.0.1", "--port", str(port), "--max-model-len", "1024", "--max-num-seqs", "16"]
    command += ["--logprobs-mode", "processed_logprobs", "--enforce-eager", "--dtype", "bfloat16"]
    command += ["--worker-extension-cls", "tests.vllm.server_extension.FileWeights"]
    command += ["--weight-transfer-config", '{"backend": "nccl"}']
    environment = os.environ | {"VLLM_SERVER_DEV_MODE": "1", "PYTHONPATH": str(ROOT), "VLLM_CPU_KVCACHE_SPACE": "1"}
    with (work / "server.log").open("w") as log:
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=subprocess.STDOUT)
    url = f"http://127.0.0.1:{port}"
    try:
        deadline = time.monotonic() + 600
        while True:
            try:
                ask(url, "/v1/models", retries=0)
                break
            except ServerError:
                assert process.poll() is None and time.monotonic() < deadline, (work / "server.log").read_text()[-3000:]
                time.sleep(1)
        yield url
    finally:
        process.terminate()
        process.wait(60)


@pytest.fixture(scope="module")
def finished(work, server):  # noqa: F811
    config = settings(work, "name=server", "rollout.backend=vllm_server", f"rollout.vllm_server={server}")
    with weights_by_file(server, work / "weights.safetensors"):
        check_backend(config)
        done = run(config)
        done.trainer.vllm_generation.sync_weights()
        yield done


def test_updates_are_whole(finished):
    lines = [json.loads(line) for line in (finished.folder / "metrics.jsonl").read_text().splitlines()]
    updates = [line for line in lines if "loss" in line]
    assert len(updates) == UPDATES
    for line in updates:
        assert line["sampling/logp_difference"] < MEAN
        assert 0.5 < line["importance/sequence_ratio_mean"] < 2.0 and line["importance/masked_ratio_share"] == 0.0


def test_the_server_has_the_trained_weights(finished, server, work):  # noqa: F811
    experiment = finished.trainer.experiment
    database = work / "source" / "shop.sqlite"
    with (
        Sandbox(database) as sandbox,
        ThreadPoolExecutor(2) as pool,
        server_engine(server, experiment.sampling, experiment.frame.stop_ids, 6) as engine,
    ):
        made = episodes(database, 6, sandbox)
        played = play_requests(engine, experiment.frame, made, list(range(6)), experiment.sampling, pool)
    trained = finished.trainer.accelerator.unwrap_model(finished.trainer.model).eval()
    untrained = load_policy(ModelConfig(weights_dtype="float32"), work / "policy").eval()
    assert apart(trained, played) < MEAN
    assert apart(untrained, played) > 2 * MEAN


def requests_served(url):
    with urllib.request.urlopen(f"{url}/metrics", timeout=60) as answer:
        lines = answer.read().decode().splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith("vllm:request_success_total"))


def test_two_processes_ask_for_every_turn_once(work, server):  # noqa: F811
    before, updates = requests_served(server), 2
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
    command += ["-m", "tests.vllm.server_run", server, str(work / "two.safetensors"), "configs/demo.yaml"]
    command += words(work, "name=two", "rollout.backend=vllm_server", f"rollout.vllm_server={server}")
    done = subprocess.run([*command, f"train.updates={updates}"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    rows = read_episodes(work / "runs" / "two" / EPISODES).to_pylist()
    assert len({(row["update"], row["question_id"], row["candidate"]) for row in rows}) == len(rows) == updates * 8
    assert requests_served(server) - before == sum(len(row["turns"]) for row in rows)
    lines = [json.loads(line) for line in (work / "runs" / "two" / "metrics.jsonl").read_text().splitlines()]
    # Of both processes: each sampled with the update's weights, not with those before them.
    assert [line["sampling/logp_difference"] < MEAN for line in lines if "loss" in line] == [True] * updates
