"""Updates of LoRA adapters with colocated vLLM: they are merged on the way, and the engine has what was learned."""

import pytest

from sqale_grpo.train.run import run
from tests.vllm.test_training import check_updates, check_weights, settings, work  # noqa: F401


@pytest.fixture(scope="module")
def finished(work):  # noqa: F811
    return run(settings(work, "name=lora", "model.lora_rank=8", "train.learning_rate=2e-2"))


def test_updates_are_whole(finished):
    check_updates(finished)


def test_the_engine_has_the_trained_weights(finished, work):  # noqa: F811
    check_weights(finished, work)
