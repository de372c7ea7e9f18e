"""vLLM in this process as an Engine: for colocated training, for evaluation and for the agent.

The engine is stepped by hand (``add_request``, ``step``) instead of ``LLM.generate``, which would hold every episode
until the slowest of its turn. Needs the extra ``vllm``.
"""

import os
from collections.abc import Collection
from typing import Any

import torch
from vllm import LLM, SamplingParams
from vllm.sampling_params import RequestOutputKind

from sqale_grpo.env.errors import first_line
from sqale_grpo.rollout.requests import Completion, EngineLost
from sqale_grpo.settings.sampling import Sampling


class VllmEngine:
    """An ``LLM`` that writes turns, ending them on ``stop_ids`` alone and reporting each token's log-probability.

    Use it in a ``with`` block: what an error or Ctrl-C leaves unwritten is taken out of the ``LLM``, which would go on
    with it and hand it to the next engine.
    """

    def __init__(self, llm: LLM, sampling: Sampling, stop_ids: Collection[int], seeded: bool = False) -> None:
        """``seeded``: draw each turn's random numbers from its request's key, so that they do not depend on the others.

        ValueError for a ``seeded`` engine with prefix caching, which vLLM does not survive, and for one whose context
        is shorter than the episodes' budget.
        """
        config = llm.llm_engine.vllm_config
        if seeded and config.cache_config.enable_prefix_caching:
            raise ValueError("vLLM cannot seed requests while it caches prefixes: load it with seeded=True too")
        if config.model_config.max_model_len < sampling.max_episode_tokens:
            raise ValueError(
                f"vLLM holds {config.model_config.max_model_len} tokens, episodes have {sampling.max_episode_tokens}"
            )
        self._engine = llm.llm_engine
        self._sampling = sampling
        self._stop_ids = sorted(stop_ids)
        self._seeded = seeded
        self._writing: set[str] = set()

    def submit(self, request: int, token_ids: list[int], max_tokens: int) -> None:
        """Add a turn to the running batch."""
        sampling = self._sampling
        params = SamplingParams(
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k,
            max_tokens=max_tokens,
            logprobs=0,  # of the sampled token alone
            stop_token_ids=self._stop_ids,
            ignore_eos=True,  # the model's own generation config must not add to the stop ids
            detokenize=False,
            output_kind=RequestOutputKind.FINAL_ONLY,
            seed=(request + len(token_ids)) % 2**63 if self._seeded else None,
        )
        self._writing.add(str(request))
        self._engine.add_request(str(request), {"type": "token", "prompt_token_ids": token_ids}, params)

    def collect(self) -> list[Completion]:
        """One step of the engine, and the turns that it ended. EngineLost where it cannot make one."""
        try:
            ended = [output for output in self._engine.step() if output.finished]
        except torch.OutOfMemoryError:
            raise
        except Exception as error:
            raise EngineLost(
                f"vLLM ended ({type(error).__name__}: {first_line(error)}); --resume goes on from the last checkpoint"
            ) from error
        self._writing -= {output.request_id for output in ended}
        return [_completion(output) for output in ended]

    def close(self) -> None:
        """Take the turns that are not written to their end out of the ``LLM``."""
        if self._writing:
            self._engine.abort_request(sorted(self._writing))
        self._writing.clear()

    def __enter__(self) -> "VllmEngine":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _completion(output: Any) -> Completion:
    (written,) = output.outputs
    ids = list(written.token_ids)
    logprobs = [at[token].logprob for at, token in zip(written.logprobs or [], ids, strict=True)]
    return Completion(int(output.request_id), ids, logprobs)


def load_vllm(
    path: str, max_episode_tokens: int, memory_share: float = 0.9, max_requests: int = 256, seeded: bool = False
) -> LLM:
    """The policy at ``path`` (a folder or a Hub name) in vLLM, for episodes of ``max_episode_tokens``.

    ``memory_share`` of the GPU is taken; at most ``max_requests`` turns are written at once. ``seeded`` switches the
    prefix cache off, as seeded requests need it: every turn is then read from its beginning.
    """
    # A process of its own for the engine outlives a killed parent, and keeps the GPU's memory. TRL has none either.
    os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    os.environ.setdefault("VLLM_USE_V2_MODEL_RUNNER", "0")  # the one that the tests run
    return LLM(
        model=path,
        max_model_len=max_episode_tokens,
        gpu_memory_utilization=memory_share,
        max_num_seqs=max_requests,
        enable_prefix_caching=not seeded,
        # Log-probabilities under the temperature, as the trainer computes them.
        logprobs_mode="processed_logprobs",
        # Episodes are text: a vision tower is neither profiled nor given memory.
        language_model_only=True,
    )
