"""TRL's private names: the installed version has every one of the table, and we touch no other."""

import importlib
import inspect

import pytest
from trl import GRPOTrainer
from trl.generation import vllm_generation
from trl.generation.vllm_generation import VLLMGeneration
from trl.trainer import utils

from sqale_grpo.train import seams
from tests.conftest import ROOT
from tests.helpers.private_names import names_of, names_used, parameters

MOVED = "the installed TRL has no {} {}: look at what took its place, then mend train/ and train/seams.py"


@pytest.mark.parametrize("name", seams.OVERRIDDEN)
def test_a_method_that_we_override_is_there_with_its_parameters(name):
    assert hasattr(GRPOTrainer, name), MOVED.format("method", name)
    wanted = seams.OVERRIDDEN[name][0]
    assert parameters(getattr(GRPOTrainer, name))[: len(wanted)] == wanted, f"{name} takes other arguments"


@pytest.mark.parametrize("name", seams.USED)
def test_a_name_that_we_use_is_there(name):
    assert name in names_of(GRPOTrainer), MOVED.format("attribute", name)


@pytest.mark.parametrize("name", seams.GENERATION)
def test_a_name_of_the_generation_is_there(name):
    assert name in names_of(VLLMGeneration), MOVED.format("attribute of VLLMGeneration", name)


@pytest.mark.parametrize("name", seams.ENGINE)
def test_the_engine_is_made_of_the_class_that_we_replace(name):
    source = inspect.getsource(VLLMGeneration._init_vllm)
    assert f"self.llm = {name}(" in source and f"import {name}" in inspect.getsource(vllm_generation)


@pytest.mark.parametrize("key", seams.BATCH)
def test_a_key_of_the_batch_is_filled(key):
    source = inspect.getsource(GRPOTrainer._generate_and_score_completions)
    assert f'output["{key}"]' in source or f'"{key}":' in source, MOVED.format("key of a batch", key)


@pytest.mark.parametrize("name", seams.HEAD)
def test_the_head_takes_and_gives(name):
    assert name in inspect.getsource(utils.add_fused_lm_head), MOVED.format("part of its head", name)


@pytest.mark.parametrize(("module", "names"), seams.FUNCTIONS.items())
def test_a_function_is_there(module, names):
    for name in names:
        assert hasattr(importlib.import_module(module), name), MOVED.format("function", f"{module}.{name}")


def test_the_table_names_every_private_name_that_we_touch():
    """One that is missing there is new, or a name of ours that TRL has too: an override by accident."""
    used = names_used((ROOT / "train").rglob("*.py"))
    touched = used & (names_of(GRPOTrainer) | names_of(VLLMGeneration))
    assert touched == {*seams.OVERRIDDEN, *seams.USED, *seams.GENERATION}
