"""Turns written by a vLLM server (``vllm serve``), which every process asks for its own episodes. Imports no torch."""

import http.client
import json
import time
import urllib.error
import urllib.request
from collections.abc import Collection
from typing import Any

from sqale_grpo.rollout.concurrent import ConcurrentEngine
from sqale_grpo.rollout.requests import Completion
from sqale_grpo.settings.sampling import Sampling

ATTEMPTS = 5  # of a request, 1, 2, 4 ... seconds apart: a run of days must outlive a lost connection
BUSY = {408, 425, 429}  # refusals that pass, beside every 5xx
REQUEST_SECONDS = 1_800.0
CHECK_SECONDS = 10.0
# A server fills what a request leaves out from the model's generation config: penalties there would change what is
# sampled, and the importance ratio with it.
NEUTRAL = {"repetition_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0, "min_p": 0.0}


class ServerError(RuntimeError):
    """The server cannot be reached or refuses; the text names its address and what it said."""


def server_engine(url: str, sampling: Sampling, stop_ids: Collection[int], connections: int) -> ConcurrentEngine:
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
        answer = ask(f"{url}/v1/completions", {**body, "prompt": token_ids, "max_tokens": max_tokens})
        try:
            (choice,) = answer["choices"]
            return Completion(request, choice["token_ids"], choice["logprobs"]["token_logprobs"])
        except (LookupError, TypeError, ValueError) as error:
            said = json.dumps(answer)[:200]
            raise ServerError(f"{url} answers without token ids and log-probabilities: {said}") from error

    return ConcurrentEngine(complete, connections)


def model_name(url: str) -> str:
    """The model that the server holds, by the name under which requests ask for it."""
    answer = ask(f"{url}/v1/models")
    try:
        return answer["data"][0]["id"]
    except (LookupError, TypeError) as error:
        raise ServerError(f"{url}/v1/models lists no model: {json.dumps(answer)[:200]}") from error


def ask(url: str, body: dict[str, Any] | None = None, attempts: int = ATTEMPTS, seconds: float | None = None) -> Any:
    """The JSON answer of a GET, or of a POST of ``body``; ServerError after ``attempts`` failures.

    ``seconds``: how long an answer may take; by default CHECK_SECONDS for a GET, REQUEST_SECONDS for a POST.
    A refusal (status 4xx, but for a busy server's) is not tried again, nor a POST that was not answered in time: it
    has waited for half an hour.
    """
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    if seconds is None:
        seconds = CHECK_SECONDS if body is None else REQUEST_SECONDS
    for attempt in range(1, attempts + 1):
        try:
            with urllib.request.urlopen(request, timeout=seconds) as response:
                return json.load(response)
        except urllib.error.HTTPError as error:
            reason, final = _words(error), error.code < 500 and error.code not in BUSY
        except (OSError, ValueError, http.client.HTTPException) as error:
            cause = getattr(error, "reason", error)
            # The network's own time limit comes with an error number, ours without.
            late = isinstance(cause, TimeoutError) and cause.errno is None
            reason, final = str(cause) or type(cause).__name__, late and body is not None
        if final or attempt == attempts:
            raise ServerError(f"{url}: {reason}")
        time.sleep(2 ** (attempt - 1))
    raise AssertionError("unreachable")


def _words(error: urllib.error.HTTPError) -> str:
    try:
        said = " ".join(error.read(500).decode(errors="replace").split())
    except (OSError, http.client.HTTPException):
        said = error.reason
    return f"status {error.code}: {said}"
