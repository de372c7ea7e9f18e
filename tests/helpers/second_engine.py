"""A sampler beside the trainer, as a colocated vLLM is: weights of its own that must be sent, and a prefix cache.

Its policy is transformers' and its numbers are real; it stands where vLLM cannot be installed, and can be broken.
"""

import copy
import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from transformers import DynamicCache

from sqale_grpo.rollout.policy import load_policy, resolve_policy
from sqale_grpo.rollout.requests import Completion

FAULTS = ("none", "deaf", "wrong", "stale", "nan", "refuses")


class SecondEngine:
    """An Engine, and what the trainer asks of TRL's object for vLLM.

    ``fault``: ``deaf`` takes no weights, ``wrong`` takes them with an error, ``stale`` keeps its prefix cache, ``nan``
    gives log-probabilities that are none, ``refuses`` says that it did not empty its cache.
    """

    enable_sleep_mode = False

    def __init__(self, trainer: Any, fault: str = "none") -> None:
        self.trainer, self.fault = trainer, fault
        # From disk, as vLLM loads it: a copy of the trainer's would run through the head that TRL has put over it.
        model = trainer.experiment.config.model
        self.policy = load_policy(model, resolve_policy(model.path)).eval()
        self.cache_name = "cache" if "cache" in inspect.signature(self.policy.forward).parameters else "past_key_values"
        self.temperature = trainer.experiment.sampling.temperature
        self.stops = trainer.experiment.frame.stop_ids
        self.chance = torch.Generator().manual_seed(0)
        self.cached: dict[tuple[int, ...], Any] = {}
        self.waiting: list[tuple[int, list[int], int]] = []
        self.reused = 0  # tokens that were not read again
        self.llm = self

    def sync_weights(self) -> None:
        if self.fault != "deaf":
            ours = dict(self.policy.named_parameters())
            with torch.no_grad():
                for name, value in self.trainer.accelerator.unwrap_model(self.trainer.model).named_parameters():
                    ours[name].copy_(value * 1.3 if self.fault == "wrong" and ".layers.0." in name else value)
        self.reset_prefix_cache()

    def reset_prefix_cache(self) -> bool:
        if self.fault not in ("stale", "refuses"):
            self.cached.clear()
        return self.fault != "refuses"

    def submit(self, request: int, token_ids: list[int], max_tokens: int) -> None:
        self.waiting.append((request, token_ids, max_tokens))

    @torch.no_grad()
    def collect(self) -> list[Completion]:
        request, ids, most = self.waiting.pop(0)
        held = max((key for key in self.cached if list(key) == ids[: len(key)]), key=len, default=())
        cache = copy.deepcopy(self.cached[held]) if held else DynamicCache(config=self.policy.config)
        self.reused += len(held)
        if len(held) < len(ids) - 1:  # the last token is read below, as every other one that is written
            self._read(ids[len(held) : -1], cache)
        self.cached[tuple(ids[:-1])] = copy.deepcopy(cache)
        written: list[int] = []
        logprobs: list[float] = []
        token = ids[-1]
        while len(written) < most and (not written or written[-1] not in self.stops):
            logits = self._read([token], cache)[0, -1].float() / self.temperature
            chances = torch.log_softmax(logits, -1)
            token = int(torch.multinomial(chances.exp(), 1, generator=self.chance))
            written.append(token)
            logprobs.append(float("nan") if self.fault == "nan" else chances[token].item())
        return [Completion(request, written, logprobs)]

    def _read(self, ids: list[int], cache: Any) -> torch.Tensor:
        return self.policy(input_ids=torch.tensor([ids]), use_cache=True, **{self.cache_name: cache}).logits


@contextmanager
def beside(trainer: Any, fault: str = "none") -> Iterator[SecondEngine]:
    """Inside, ``trainer`` plays with such an engine."""
    engine = SecondEngine(trainer, fault)

    @contextmanager
    def opened(*_: Any) -> Iterator[SecondEngine]:
        yield engine

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sqale_grpo.train.player._colocated_engine", opened)
        patch.setattr(trainer, "use_vllm", True)
        patch.setattr(trainer, "vllm_mode", "colocate")
        patch.setattr(trainer, "vllm_generation", engine, raising=False)
        yield engine
