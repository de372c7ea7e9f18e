"""Weights on their way to vLLM: what arrives is base plus adapter, and the frozen base stays as it came.

There is no engine here: what is looked at is the walk over the weights that it would be sent.
"""

import copy
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from accelerate import Accelerator
from peft import PeftModel
from trl.generation import vllm_generation
from trl.generation.vllm_generation import VLLMGeneration

from sqale_grpo.rollout.requests import EngineLost
from sqale_grpo.settings.load import load_config
from sqale_grpo.train.anchor import with_adapters
from sqale_grpo.train.sync import engine_arguments, engine_seed, leave_the_base_alone, merged_weights, send_weights

SYNCS = 30


@pytest.fixture
def adapted(random_policy: Any) -> Iterator[Any]:
    """Makes a copy of the random policy, in a number format, with adapters that change it."""

    def make(dtype: torch.dtype) -> PeftModel:
        policy = with_adapters(copy.deepcopy(random_policy).to(dtype), load_config([], ["model.lora_rank=4"]))
        with torch.no_grad():
            for name, parameter in policy.named_parameters():
                if "lora_" in name:
                    parameter.copy_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(len(name))))
        return policy

    return make


def walk_of_trl(policy: PeftModel) -> VLLMGeneration:
    """TRL's own object without an engine."""
    made = VLLMGeneration.__new__(VLLMGeneration)
    made.model, made.accelerator = policy, Accelerator(cpu=True)
    made._dist = vllm_generation.DistributedBackend(made.accelerator)
    return made


def base_of(policy: PeftModel) -> dict[str, torch.Tensor]:
    return {name: value.detach().clone() for name, value in policy.named_parameters() if "lora_" not in name}


def learn(policy: PeftModel, generator: torch.Generator) -> None:
    with torch.no_grad():
        for name, parameter in policy.named_parameters():
            if "lora_" in name:
                parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.01)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_the_frozen_base_does_not_move(adapted: Any, dtype: torch.dtype) -> None:
    policy, generator = adapted(dtype), torch.Generator().manual_seed(0)
    first = base_of(policy)
    for _ in range(SYNCS):
        learn(policy, generator)
        assert sum(1 for _ in merged_weights(policy)) > 0
    now = base_of(policy)
    assert all(torch.equal(now[name], value) for name, value in first.items())


def test_trls_own_walk_would_move_it(adapted: Any) -> None:
    """Why it is replaced; where this fails, TRL has mended it."""
    policy, generator = adapted(torch.bfloat16), torch.Generator().manual_seed(0)
    first, walk = base_of(policy), walk_of_trl(policy)
    for _ in range(SYNCS):
        learn(policy, generator)
        for _ in walk._iter_named_params():
            pass
    now = base_of(policy)
    moved = [(now[name].float() - value.float()).norm() / value.float().norm() for name, value in first.items()]
    assert max(moved) > 1e-2


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_what_is_sent_is_the_policy(adapted: Any, random_policy: Any, dtype: torch.dtype) -> None:
    policy = adapted(dtype)
    sent = {name: value.clone() for name, value in merged_weights(policy)}
    plain = copy.deepcopy(random_policy).to(dtype)
    assert set(sent) == {name for name, _ in plain.named_parameters()}, "the names that vLLM knows"
    theirs = {name: value.clone() for name, value in walk_of_trl(copy.deepcopy(policy))._iter_named_params()}
    assert set(theirs) == set(sent)
    plain.load_state_dict(sent, strict=False)
    ids = torch.randint(0, 300, (2, 20), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        ours = plain(input_ids=ids).logits.float().log_softmax(-1)
        wanted = policy(input_ids=ids).logits.float().log_softmax(-1)
    changed = (ours - random_policy.to(torch.float32)(input_ids=ids).logits.log_softmax(-1)).abs().mean()
    assert (ours - wanted).abs().mean() < (1e-5 if dtype == torch.float32 else 0.05 * changed)
    name = "model.layers.0.mlp.gate_proj.weight"
    layer = policy.get_submodule("base_model.model.model.layers.0.mlp.gate_proj")
    sum_of_both = layer.base_layer.weight.float() + layer.scaling["default"] * (
        layer.lora_B["default"].weight.float() @ layer.lora_A["default"].weight.float()
    )
    assert torch.equal(sent[name], sum_of_both.to(dtype)), "rounded once"


def test_a_trainer_with_adapters_sends_them_so(adapted: Any) -> None:
    walk = walk_of_trl(adapted(torch.bfloat16))
    first = base_of(walk.model)
    leave_the_base_alone(SimpleNamespace(vllm_generation=walk))
    for _ in walk._iter_named_params():
        pass
    assert all(torch.equal(value, first[name]) for name, value in base_of(walk.model).items())


@pytest.mark.parametrize(("answer", "fails"), [(True, False), (None, False), (False, True)])
def test_a_prefix_cache_that_is_not_emptied_ends_the_run(answer: bool | None, fails: bool) -> None:
    engine = SimpleNamespace(sync_weights=lambda: None, llm=SimpleNamespace(reset_prefix_cache=lambda: answer))
    trainer = SimpleNamespace(vllm_mode="colocate", vllm_generation=engine)
    if fails:
        with pytest.raises(EngineLost, match="did not empty its prefix cache"):
            send_weights(trainer)
    else:
        send_weights(trainer)


def test_the_runs_seed_reaches_the_engine(random_policy: Any, tokenizer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """TRL's own code makes the engine; in its place stands what keeps the arguments."""
    asked: list[dict[str, Any]] = []
    monkeypatch.setattr(vllm_generation, "is_vllm_available", lambda: True)
    monkeypatch.setattr(vllm_generation, "LLM", lambda **given: asked.append(given), raising=False)
    monkeypatch.setattr(vllm_generation, "is_bitsandbytes_available", lambda: False)
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.setenv(name, "0" if name != "WORLD_SIZE" else "1")  # TRL sets them; the test puts them back
    for seed in (42, 43):
        with engine_arguments(seed=engine_seed(seed, 0, 0)):
            VLLMGeneration(random_policy, Accelerator(cpu=True), tokenizer, max_model_length=77)
    assert [each["seed"] for each in asked] == [engine_seed(42, 0, 0), engine_seed(43, 0, 0)]
    assert asked[0]["seed"] != asked[1]["seed"] and asked[0]["max_model_len"] == 77
    seeds = {engine_seed(seed, update, process) for seed in (1, 2) for update in (0, 50) for process in range(8)}
    assert len(seeds) == 32, "each process, and each start of a run, has a stream of its own"
