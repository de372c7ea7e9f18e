"""Whether what ``rollout.backend`` asks for is there: vLLM in a version that fits, its server. Imports no torch."""

import time
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from packaging.version import Version

from sqale_grpo.rollout.http import ServerError
from sqale_grpo.rollout.vllm_server import ask
from sqale_grpo.settings.check import ConfigError
from sqale_grpo.settings.keys import Config

# What the tests run (`make vllm-test`). TRL 1.16 would take 0.22 to 0.31; what a turn costs and how it is computed
# changes with the minor version (prefix caching for this architecture came between 0.27 and 0.31).
TESTED = Version("0.31")
# From here on vLLM's profiling of Qwen3.5's vision-language class fails (measured with 5.24 beside vLLM 0.31).
TRANSFORMERS_END = Version("5.23")
POLL_SECONDS = 2.0
INFO_SECONDS = 120.0  # a server's first answer lists its machine too: pip, nvidia-smi and others are run for it
ENVIRONMENT = "use the environment that `make vllm-env` makes, or set rollout.backend=transformers"
SERVE = (
    "VLLM_SERVER_DEV_MODE=1 vllm serve MODEL --logprobs-mode processed_logprobs "
    """--weight-transfer-config '{"backend": "nccl"}' --max-model-len TOKENS"""
)


def check_backend(config: Config) -> None:
    """ConfigError where ``rollout.backend`` cannot work here: no vLLM, a version that does not fit, no fit server."""
    if config.rollout.backend == "transformers":
        return
    _check_versions(config.rollout.backend)
    if config.rollout.backend == "vllm_server":
        _check_server(config)


def _check_versions(backend: str) -> None:
    try:
        found = Version(version("vllm"))
    except PackageNotFoundError as error:
        raise ConfigError(f"rollout.backend={backend} needs vLLM, which is not installed: {ENVIRONMENT}") from error
    release = Version(f"{found.major}.{found.minor}")
    if release != TESTED:
        raise ConfigError(f"vLLM {found} is installed, and {TESTED} is what was tested: {ENVIRONMENT}")
    transformers = Version(version("transformers"))
    if transformers >= TRANSFORMERS_END:
        raise ConfigError(
            f"transformers {transformers} is installed, vLLM {found} needs one before {TRANSFORMERS_END}: {ENVIRONMENT}"
        )


def _check_server(config: Config) -> None:
    url, wait = config.rollout.vllm_server, config.rollout.vllm_server_wait
    _wait_for(url, wait)
    try:
        info = ask(url, "/server_info?config_format=json", INFO_SECONDS, retries=0)["vllm_config"]
        requirements = _requirements(config, info)
    except (ServerError, LookupError, TypeError) as error:
        reason = error.what if isinstance(error, ServerError) else "its answer is not of the expected form"
        raise ConfigError(
            f"rollout.vllm_server={url} does not tell its configuration, as one that takes weights does ({reason}); "
            f"start it as: {SERVE}"
        ) from error
    for holds, problem in requirements:
        if not holds:
            raise ConfigError(f"rollout.vllm_server={url} {problem}; start it as: {SERVE}")


def _requirements(config: Config, info: dict[str, Any]) -> list[tuple[bool, str]]:
    """(does it hold, what is wrong if not) of a server's configuration as its /server_info gives it."""
    model, tokens = info["model_config"], config.rollout.max_episode_tokens
    mode = model["logprobs_mode"]
    return [
        (
            model["max_model_len"] >= tokens,
            f"holds {model['max_model_len']} tokens, fewer than rollout.max_episode_tokens={tokens}",
        ),
        (
            mode == "processed_logprobs",
            f"gives {mode}, which are not those that its tokens were drawn with and bias the importance ratio",
        ),
        (info.get("weight_transfer_config") is not None, "has no weight transfer, so updates cannot reach it"),
    ]


def _wait_for(url: str, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while True:
        try:
            ask(url, "/v1/models", retries=0)
            return
        except ServerError as error:
            if time.monotonic() >= deadline:
                raise ConfigError(
                    f"rollout.vllm_server: no vLLM server answers ({error.what}); start one as: {SERVE} "
                    "(rollout.vllm_server_wait=SECONDS waits for one that is loading)"
                ) from error
        time.sleep(POLL_SECONDS)
