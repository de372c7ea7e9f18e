"""The demo's policy as a file: what model.path=demo leads to, what is refused, and that a build makes such a policy."""

import json
import re
import shutil

import pytest
import torch
from transformers import AutoTokenizer

from sqale_grpo.corpus import prepare
from sqale_grpo.corpus.demo import DemoShape
from sqale_grpo.demo import build
from sqale_grpo.rollout.demo_policy import CARD, FOLDER, SUMS, demo_policy_folder, write_sums
from sqale_grpo.rollout.policy import load_policy
from sqale_grpo.rollout.policy_path import resolve_policy
from sqale_grpo.settings.check import ConfigError
from sqale_grpo.settings.keys import ModelConfig
from sqale_grpo.settings.load import load_config
from tests.conftest import ROOT

WEIGHTS = "model.safetensors"
# How far a policy built on another processor may be from the file: two rates over 192 questions differ by this much by
# chance alone (three standard deviations at 30%), and the way to the minimum differs too.
BOUND = 0.15


def test_demo_means_the_file_of_the_package():
    assert resolve_policy("demo") == FOLDER == demo_policy_folder()
    assert (FOLDER / WEIGHTS).stat().st_size < 1_000_000
    policy = load_policy(ModelConfig(path="demo", weights_dtype="float32"), FOLDER)
    assert {p.dtype for p in policy.parameters()} == {torch.float32}
    assert AutoTokenizer.from_pretrained(FOLDER).eos_token == "<|im_end|>"


@pytest.mark.parametrize("harm", ["cut", "changed", "gone"])
def test_a_file_that_was_harmed_is_one_sentence(tmp_path, harm):
    folder = shutil.copytree(FOLDER, tmp_path / "policy")
    path = folder / WEIGHTS
    content = path.read_bytes()
    if harm == "gone":
        path.unlink()
    else:
        path.write_bytes(content[:-9] if harm == "cut" else content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(
        ConfigError, match=f"{re.escape(str(path))} (is missing|was changed or cut off); .*build-policy"
    ):
        demo_policy_folder(folder)
    if harm != "gone":
        path.write_bytes(content)
        assert demo_policy_folder(folder) == folder


def test_without_its_digests_the_policy_is_refused(tmp_path):
    (tmp_path / SUMS).write_text("no digest here at all\n")
    with pytest.raises(ConfigError, match="has no readable SHA256SUMS"):
        demo_policy_folder(tmp_path)
    (tmp_path / SUMS).write_text("")
    with pytest.raises(ConfigError, match="SHA256SUMS was cut off"):
        demo_policy_folder(tmp_path)
    (tmp_path / SUMS).unlink()
    (tmp_path / WEIGHTS).write_bytes(b"weights")
    write_sums(tmp_path)
    assert demo_policy_folder(tmp_path) == tmp_path


def test_the_card_names_the_weights_and_the_rates():
    card = (FOLDER / CARD).read_text()
    digest = next(line.split()[0] for line in (FOLDER / SUMS).read_text().splitlines() if line.endswith(WEIGHTS))
    assert digest in card and "build-policy" in card
    for name, rate in json.loads((FOLDER / build.MEASURED).read_text()).items():
        assert f"{rate:.1%}" in card or str(rate) in card, name


@pytest.mark.long
def test_a_policy_under_the_floor_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    shape = DemoShape((3, 6), 5, schemas=(2, 1), questions=(6, 2))
    corpus = prepare("demo", None, tmp_path / "train", shape=shape, progress=False).directory
    short = ["careful_traces=12", "imperfect_traces=4", "copy_max_steps=1", "clean_steps=2", "imperfect_steps=1"]
    small = ["hidden_size=32", "head_dim=32", "linear_head_dim=16"]
    config = load_config(["demo"], [f"demo_policy.{word}" for word in short + small])
    with pytest.raises(ConfigError, match=r"answers 0% of train questions, under demo_policy\.floor=0\.1"):
        build.build_policy(config, corpus, tmp_path / "policy", lambda text: None)
    assert not (tmp_path / "policy" / SUMS).exists()


@pytest.mark.slow
def test_a_build_makes_a_policy_of_the_file_s_rates(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    assert build.main(["--out", str(tmp_path / "policy"), f"corpus.prepared={tmp_path}"]) == 0
    built, shipped = (json.loads((path / build.MEASURED).read_text()) for path in (tmp_path / "policy", FOLDER))
    for name, rate in shipped.items():
        assert abs(built[name] - rate) <= BOUND, name
    assert demo_policy_folder(tmp_path / "policy")
