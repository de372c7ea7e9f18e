"""Training with a vLLM server on a machine without NCCL: weights go to the server as a file (``server_extension``).

``python -m tests.vllm.server_run URL FILE WORDS...`` is ``sqale-grpo train WORDS...`` with that transport.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from safetensors.torch import save_file
from trl.generation.vllm_client import VLLMClient

from sqale_grpo.rollout.http import HttpClient
from tests.helpers.programs import program

main = program("train")


@contextmanager
def weights_by_file(url: str, path: Path) -> Iterator[None]:
    """In the block, TRL's client writes the weights to ``path`` and has the server at ``url`` load them."""

    def send(self, metadata, named_params):
        save_file({name: p.detach().cpu().contiguous().clone() for name, p in named_params}, path)
        HttpClient(url, 600).post("/collective_rpc", {"method": "load_weights_file", "args": [str(path)]}, "weights")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(VLLMClient, "init_communicator", lambda self, device=0: None)
        patch.setattr(VLLMClient, "update_named_params", send)
        yield


if __name__ == "__main__":
    with weights_by_file(sys.argv[1], Path(sys.argv[2])):
        sys.exit(main(sys.argv[3:]))
