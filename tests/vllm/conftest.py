"""Everything here runs real vLLM: `make vllm-test`, in the environment of `make vllm-env`."""

from importlib.util import find_spec
from pathlib import Path

import pytest

INSTALLED = find_spec("vllm") is not None
if not INSTALLED:
    collect_ignore_glob = ["test_*.py"]
else:
    import torch

    if not torch.cuda.is_available():
        from tests.vllm import cpu_seams

        cpu_seams.install()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here):
            item.add_marker("vllm")
