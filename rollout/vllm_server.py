"""Turns written by a vLLM server (``vllm serve``), which every process asks for its own episodes. Imports no torch."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

from sqale_grpo.rollout.concurrent import ConcurrentEngine
from sqale_grpo.rollout.http import HttpClient, ServerError
from sqale_grpo.rollout.requests import Completion
from sqale_grpo.settings.sampling import Sampling

REQUEST_SECONDS = 1_800.0
CHECK_SECONDS = 10.0
WANTED = "serve the model with a vLLM that rollout.backend=vllm_server can use: docs/vllm.md"
# A server fills what a request leaves out from the model's generation config: penalties there would change what is
# sampled, and the importance ratio with it.
NEUTRAL = {"repetition_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0, "min_p": 0.0}


@contextmanager
def server_engine(
    url: str, sampling: Sampling, stop_ids: Collection[int], connections: int
) -> Iterator[ConcurrentEngine]:
    """An Engine over the completions endpoint of the server at ``url``; ServerError where there is none."""
    body = {
        **NEUTRAL,
        "model": model_name(url),
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k,
        "logprobs": 0,  # of the sampled token alone
        "stop_token_ids": sorted(stop_ids),
        "ignore_eos": True,  # the model's own generation config must not add to the stop ids
        "return_token_ids": True,
        "return_tokens_as_token_ids": True,
    }

    def complete(request: int, token_ids: list[int], max_tokens: int) -> Completion:
        asked = {**body, "prompt": token_ids, "max_tokens": max_tokens}
        answer = client.post("/v1/completions", asked, f"{request} {len(token_ids)}")
        try:
            (choice,) = answer["choices"]
            return Completion(request, choice["token_ids"], choice["logprobs"]["token_logprobs"])
        except (LookupError, TypeError, ValueError) as error:
            said = client.shown(answer)
            raise ServerError(f"{url} answers without token ids and log-probabilities: {said}", WANTED) from error

    client = HttpClient(url, REQUEST_SECONDS)
    with ConcurrentEngine(complete, connections) as engine:
        yield engine


def model_name(url: str) -> str:
    """The model that the server holds, by the name under which requests ask for it."""
    answer = ask(url, "/v1/models")
    try:
        return answer["data"][0]["id"]
    except (LookupError, TypeError) as error:
        raise ServerError(f"{url}/v1/models lists no model: {str(answer)[:200]}", WANTED) from error


def ask(url: str, path: str, seconds: float | None = None, **more: Any) -> dict[str, Any]:
    """One GET by a client of its own; ``seconds``: to wait, CHECK_SECONDS if None; ``more``: the client's arguments."""
    return HttpClient(url, CHECK_SECONDS if seconds is None else seconds, **more).get(path)
