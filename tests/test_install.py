"""The installer: what keeps it from installing is one sentence."""

import ast
import importlib.util
import subprocess
import sys
import venv

import pytest

from tests.conftest import ROOT

FILE = ROOT / "scripts" / "install.py"
spec = importlib.util.spec_from_file_location("install_script", FILE)
install = importlib.util.module_from_spec(spec)
spec.loader.exec_module(install)


def test_an_old_python_can_read_it_and_is_told():
    """Python 3.6 knows these nodes and no others; its grammar is asked, since none that old is at hand."""
    ast.parse(FILE.read_text(encoding="utf-8"), feature_version=(3, 6))
    with pytest.raises(install.Failed, match=r"is Python 3\.10 and the project needs 3\.11 or newer"):
        install.check_python((3, 10, 4), "/usr/bin/python3")
    install.check_python((3, 13, 0), "python3")


def test_a_python_without_venv_is_told(tmp_path):
    """As Debian ships it: the module is there, and says that what it needs is not."""
    (tmp_path / "venv.py").write_text("raise SystemExit('not created: ensurepip is not available')\n")
    environment = {"PYTHONPATH": str(tmp_path), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [sys.executable, str(FILE), str(tmp_path / "venv"), "train"], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert "cannot make virtual environments; install its venv module" in done.stderr


@pytest.mark.long
def test_no_network_is_told(tmp_path):
    venv.create(tmp_path / "venv", with_pip=True)
    nowhere = {"PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": "/dev/null", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [sys.executable, str(FILE), str(tmp_path / "venv"), "train"], env=nowhere, capture_output=True, text=True
    )
    assert done.returncode == 2, done.stderr
    assert "error: pip cannot get a package" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("errors", "sentence"),
    [
        (["Failed building wheel for x"], "install a C compiler"),
        (["Could not install packages due to an OSError: [Errno 28] No space left on device"], "the disk is full"),
        ([], "pip failed"),
    ],
)
def test_pips_errors_are_explained(errors, sentence):
    assert sentence in install.explain(errors)


@pytest.mark.parametrize(("reached", "asked"), [(True, 1), (False, 2)])
def test_without_a_gpu_torch_is_the_cpu_build_of_the_tested_version(tmp_path, capfd, reached, asked):
    """2.7 GB of CUDA are fetched only where PyTorch's own index cannot be reached, and then it is said."""
    constraints = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    (pinned,) = (line for line in constraints if line.startswith("torch=="))
    pip = tmp_path / "pip"
    refuse = "" if reached else 'case "$*" in *whl/cpu*) exit 1;; esac\n'
    pip.write_text(f'#!/bin/sh\necho "$*" >> {tmp_path / "asked"}\n{refuse}')
    pip.chmod(0o755)
    install.install_cpu_torch([str(pip)])
    lines = (tmp_path / "asked").read_text(encoding="utf-8").splitlines()
    assert len(lines) == asked and lines[0].endswith(f"{install.CPU_INDEX} {pinned}+cpu")
    if not reached:
        assert lines[1] == pinned and "may be 2.7 GB with CUDA" in "".join(capfd.readouterr())
