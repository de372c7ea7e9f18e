"""`make gpu-proof` in its CPU form: every step runs, and the folder holds what is to be kept."""

import json
import subprocess
import sys

import pytest

from tests.conftest import ROOT


@pytest.mark.slow
def test_the_proof_runs_on_a_cpu_and_says_so(tmp_path):
    command = [sys.executable, "scripts/gpu_proof.py", str(tmp_path / "proof"), "--cpu"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1_500)
    out = tmp_path / "proof"
    steps = json.loads((out / "proof.json").read_text())["steps"]
    ended = {step["name"]: step["status"] for step in steps}
    # The benchmark's limits are a GPU's: on a CPU it may end over them, with its figures.
    assert {name for name, status in ended.items() if status} <= {"step"}, (ended, done.stderr[-2000:])
    assert ended["step"] in (0, 1) and done.returncode == ended["step"]
    found = {step["name"]: step["figures"] for step in steps}
    assert {row["name"] for row in found["preflight"]} >= {"kernels", "kernel gradients", "memory", "disk"}
    assert all(row["state"] != "failed" for row in found["preflight"])
    assert found["step"]["measured"]["peak_bytes"] > 1e8 and [row["update"] for row in found["demo"]] == [0, 1]
    page = (out / "proof.md").read_text()
    assert "the CPU form, with tiny shapes: it shows that the steps run, and nothing of a GPU" in page
    for words in ("## Preflight", "## An update", "## The demo", "| kernel gradients | right |"):
        assert words in page
    assert (out / "demo.html").exists() and json.loads((out / "machine.json").read_text())["packages"]["trl"]
