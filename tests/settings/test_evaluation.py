"""Configuration of an evaluation: errors that name thing, place and fix, names that are made, and the page of keys."""

import dataclasses

import pytest

from sqale_grpo.settings.check import ConfigError
from sqale_grpo.settings.docs import keys_markdown
from sqale_grpo.settings.evaluation import INTRO, EvaluationConfig, evaluation_folder, load_evaluation, with_names
from sqale_grpo.settings.load import save_config
from tests.conftest import ROOT


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("bakend=vllm", ["unknown key 'bakend'", "did you mean 'backend'?"]),
        ("server.uri=x", ["did you mean 'server.url'?"]),
        ("backend=tgi", ["backend must be one of transformers, vllm, openai, oracle"]),
        ("questions=0", ["questions must be at least 1"]),
        ("schema=half", ["schema must be gold, distractors:N, full or sampled, not 'half'"]),
        ("tables=gold", ["override 'tables=gold': tables is now schema"]),
        ("name=a/b", ["name must be a folder name, not 'a/b'"]),
        ("model=''", ["model is empty"]),
        ("env.query_seconds=40", ["reward.gold_seconds (30) must not be under env.query_seconds (40)"]),
        ("sampling.max_turn_tokens=99999", ["must be over sampling.max_turn_tokens (99999)"]),
        ("server.url=localhost:8000", ["server.url must be an http(s) address"]),
        ("server.url=http://user:secret@host/v1", ["the environment variable that server.key_variable names"]),
    ],
)
def test_mistakes_name_the_key_and_the_fix(override, words):
    with pytest.raises(ConfigError) as error:
        load_evaluation([], [override])
    for word in words:
        assert word in str(error.value)
    if "secret" in override:
        assert "secret" not in str(error.value), "no message repeats an address with a key in it"


def test_greedy_candidates_would_repeat_one_episode():
    with pytest.raises(ConfigError, match="would repeat one episode"):
        load_evaluation([], ["candidates=4", "sampling.temperature=0"])


@pytest.mark.parametrize(
    ("overrides", "name"),
    [
        (["model=Qwen/Qwen3.5-2B"], "qwen3.5-2b-sqale-full"),
        (
            ["model=runs/demo-seed1/checkpoint-25", "schema=distractors:32"],
            "demo-seed1-checkpoint-25-sqale-distractors-32",
        ),
        (["model=runs/x/", "benchmark=mine"], "x-mine-full"),
        (["backend=oracle"], "oracle-sqale-full"),
        (["backend=oracle", "corpus.split=train"], "oracle-sqale-train-full"),
        (["backend=oracle", "corpus.name=bird", "corpus.split=dev"], "oracle-bird-full"),
        (["backend=oracle", "corpus.difficulties=[moderate]"], "oracle-sqale-moderate-full"),
        (["name=Mine"], "mine"),
    ],
)
def test_an_evaluation_without_a_name_gets_one(overrides, name):
    config = with_names(load_evaluation([], overrides))
    assert config.name.lower() == name and evaluation_folder(config).name == config.name
    assert with_names(config) == config


def test_a_saved_evaluation_is_read_back(tmp_path):
    config = load_evaluation([ROOT / "configs" / "eval" / "bird.yaml"], ["parameters=27e9", "server.api=chat"])
    save_config(config, tmp_path / "config.yaml")
    assert load_evaluation([tmp_path / "config.yaml"]) == config
    assert dataclasses.replace(config, backend="openai").parameters == 27e9


def test_the_page_of_keys_is_current():
    page = (ROOT / "docs" / "configuration_evaluate.md").read_text(encoding="utf-8")
    assert page == keys_markdown(EvaluationConfig, INTRO), (
        "run: sqale-grpo evaluate --keys > docs/configuration_evaluate.md"
    )
