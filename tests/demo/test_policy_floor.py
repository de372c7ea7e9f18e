"""The demo policy's gate: one that is too weak for GRPO is refused; which settings make another policy."""

import pytest

from sqale_grpo.corpus import prepare
from sqale_grpo.corpus.demo import DemoShape
from sqale_grpo.demo.build import MEASURED, build_policy, policy_key, trace_sizes
from sqale_grpo.settings.check import ConfigError
from sqale_grpo.settings.load import load_config
from tests.conftest import ROOT

DEMO, FINDING = (ROOT / "configs" / name for name in ("demo.yaml", "finding.yaml"))


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("floor") / "train"
    shape = DemoShape((3, 6), 5, schemas=(2, 1), questions=(6, 2))
    return prepare("demo", None, folder, shape=shape, progress=False).directory


def test_a_policy_under_the_floor_is_refused(tmp_path, corpus, random_policy, tokenizer):
    config = load_config(
        [DEMO], ["evaluate.max_turn_tokens=8", "env.tool_turns=1", f"env.prompts={ROOT}/env/prompts.json"]
    )
    folder = tmp_path / policy_key(config, corpus)
    random_policy.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    with pytest.raises(ConfigError, match=r"answers 0% of train questions, under policy\.floor=0\.1"):
        build_policy(config, corpus, tmp_path, lambda text: None)
    assert not (folder / MEASURED).exists(), "the next start measures again"


def test_the_finding_begins_with_the_policy_of_the_demo(corpus, monkeypatch):
    monkeypatch.chdir(ROOT)
    demo, finding = load_config([DEMO]), load_config([DEMO, FINDING])
    assert trace_sizes(demo) == trace_sizes(finding) == (4, 24)
    assert policy_key(demo, corpus) == policy_key(finding, corpus)
    longer = load_config([DEMO, FINDING], ["demo_policy.max_tables=null"])
    assert trace_sizes(longer) == (4, 64)
    assert policy_key(longer, corpus) != policy_key(demo, corpus)
