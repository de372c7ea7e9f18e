"""Everything that a machine with one GPU can show in ten minutes, in a folder to keep: `make gpu-proof`.

    python scripts/gpu_proof.py OUT [--cpu] [--wheels FOLDER]
    python scripts/gpu_proof.py --pack FOLDER

Three steps, each a process with a limit of its own: the preflight and the step benchmark with random weights of
Qwen3.5-2B's shape, then updates of the demo in bfloat16. OUT gets each one's output, ``machine.json``, ``proof.json``
and ``proof.md``. A step that fails does not stop the others; the exit status is 1 then.

The machine needs torch, transformers, accelerate and peft. What else the project needs is installed from the wheels in
FOLDER, without a network; ``--pack`` downloads them, elsewhere. ``--cpu`` is the same with tiny shapes, for tests.
"""

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
THERE = ("torch", "transformers", "accelerate", "peft")  # on the machine already, with all that they need
CARRIED = (
    *("flash-linear-attention>=0.5",),  # the kernels that are no build of C++
    *("trl>=1.16,<1.17", "datasets>=5.2", "SQaLe>=0.2,<0.3", "omegaconf>=2.4", "packaging>=25", "pyyaml>=6"),
    *("rich>=15", "pyarrow>=20", "jinja2>=3.1", "sqlglot>=30"),
)
# Shorter than benchmarks/step.py alone: 4 episodes of 3,072 tokens, so that two updates are minutes.
PAPER = (
    *("train.questions_per_update=2", "train.candidates=2", "rollout.max_turn_tokens=1024"),
    *("rollout.max_episode_tokens=3072", "corpus.limit=60"),
)
WITHOUT = "train.preflight=false"  # a step of its own makes it
TINY_SHAPE = {
    **{"vocab_size": 500, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 4},
    **{"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16, "linear_num_key_heads": 1},
    **{"linear_num_value_heads": 1, "linear_key_head_dim": 16, "linear_value_head_dim": 16},
}
TINY = (
    *("train.micro_batch=4", "train.use_cpu=true", "model.dtype=float32", "env.prompts=configs/prompts/demo.json"),
    *("env.tool_turns=1", "rollout.max_turn_tokens=16", "rollout.max_episode_tokens=600"),
)
DEMO = ("train.updates=6", "train.micro_batch=36")
DEMO_TINY = ("train.updates=2", "train.questions_per_update=2", "train.candidates=2", "corpus.limit=60")
SECONDS = {"preflight": 210, "step": 240, "demo": 180}
WHOLE_SECONDS = 600  # of all steps; a step has no more than what is left
SHARED = 4  # a CPU of tests has other work


def main() -> int:
    """Make the proof, or pack what it needs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path, nargs="?", default=Path("build/gpu-proof"), help="the folder to fill")
    parser.add_argument("--cpu", action="store_true", help="tiny shapes, on the CPU")
    parser.add_argument("--wheels", type=Path, help="install what is missing from the wheels in this folder")
    parser.add_argument("--pack", type=Path, metavar="FOLDER", help="download those wheels, and stop")
    options = parser.parse_args()
    if options.pack:
        return pack(options.pack)
    if options.wheels:
        install(options.wheels)
    if (options.out / "machine.json").exists():
        shutil.rmtree(options.out)  # an earlier proof: its runs would be taken for this one's
    elif options.out.is_dir() and any(options.out.iterdir()):
        parser.error(f"{options.out} holds other files: name an empty folder")
    options.out.mkdir(parents=True, exist_ok=True)
    return prove(options.out.resolve(), options.cpu)


def pack(folder: Path) -> int:
    """Wheels of ``CARRIED`` and what they need, but for what ``THERE`` brings."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--dest", str(folder), "-c", "constraints.txt"]
    done = subprocess.run([*command, "--only-binary", ":all:", *CARRIED], cwd=ROOT)
    for wheel in folder.glob("*.whl"):
        if wheel.name.partition("-")[0].lower() in (*THERE, "numpy", "triton", "tokenizers", "safetensors") or (
            wheel.name.startswith("nvidia_")
        ):
            wheel.unlink()
    size = sum(wheel.stat().st_size for wheel in folder.glob("*.whl"))
    print(f"{folder}: {len(list(folder.glob('*.whl')))} wheels, {size / 2**20:.0f} MiB")
    return done.returncode


def install(folder: Path) -> None:
    """Install the wheels as they are, but for what the machine has: its own packages may need that very version."""
    wheels = [str(wheel) for wheel in sorted(folder.glob("*.whl")) if _version(wheel.name.partition("-")[0]) is None]
    if not wheels:
        return
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", *wheels], check=True)


def prove(out: Path, cpu: bool) -> int:
    """Make all steps and write the report; 1 where one failed."""
    (out / "machine.json").write_text(json.dumps(machine(), indent=1))
    end = time.monotonic() + WHOLE_SECONDS * (SHARED if cpu else 1)
    steps = [step(out, name, command, cpu, end) for name, command in commands(out, cpu).items()]
    (out / "proof.json").write_text(json.dumps({"cpu": cpu, "steps": steps}, indent=1))
    (out / "proof.md").write_text(report(out, steps, cpu))
    print((out / "proof.md").read_text())
    return 0 if all(each["status"] == 0 for each in steps) else 1


def commands(out: Path, cpu: bool) -> dict[str, list[str]]:
    """The command of each step."""
    python, where = sys.executable, [f"output={out / 'runs'}", f"corpus.prepared={out / 'prepared'}"]
    shape = [f"shape.{name}={value}" for name, value in TINY_SHAPE.items()] if cpu else []
    paper = [*PAPER, *(TINY if cpu else ())]
    device = ["train.use_cpu=true"] if cpu else ["train.use_cpu=false", "model.dtype=bfloat16"]
    policy = f"model.path={out / 'policy'}"
    own = ["name=preflight", policy, "corpus.name=demo", "corpus.source=null", "corpus.difficulties=[]"]
    backend = "rollout.backend=transformers"
    return {
        "policy": [python, "scripts/gpu_proof_policy.py", str(out / "policy"), *shape],
        "preflight": [python, *train("configs/recipe.yaml"), *own, backend, *where, *paper, "--preflight"],
        "step": [python, "benchmarks/step.py", "--paper", *shape, *paper, where[1], WITHOUT],
        "demo": [
            *[python, *train("configs/demo.yaml"), "name=demo", *where, *device, WITHOUT],
            *(DEMO_TINY if cpu else DEMO),
        ],
        "report": [python, "-m", "sqale_grpo.report", str(out / "runs" / "demo"), "--out", str(out / "demo.html")],
    }


def train(config: str) -> list[str]:
    """The start of a training command."""
    return ["-m", "sqale_grpo.train", config]


def step(out: Path, name: str, command: list[str], cpu: bool, end: float) -> dict[str, Any]:
    """Run one step until ``end`` at most, its output in ``OUT/NAME.txt``: how it ended, its seconds, its figures."""
    started = time.monotonic()
    print(f"{name} ...", flush=True)
    environment = {**os.environ, "COLUMNS": "160", "HF_HUB_OFFLINE": "1", "PYTHONPATH": import_path(out)}
    with (out / f"{name}.txt").open("w") as log:
        try:
            limit = min(SECONDS.get(name, 120) * (SHARED if cpu else 1), max(1.0, end - time.monotonic()))
            status = subprocess.run(
                command, cwd=ROOT, env=environment, stdout=log, stderr=log, timeout=limit
            ).returncode
        except subprocess.TimeoutExpired:
            status = 124
    return {
        "name": name,
        "command": " ".join(command[1:]),
        "status": status,
        "seconds": round(time.monotonic() - started, 1),
        "figures": figures(out, name),
    }


def import_path(out: Path) -> str:
    """Where Python finds the project without an installation: a link of its name to this folder."""
    link = out / "import" / "sqale_grpo"
    link.parent.mkdir(exist_ok=True)
    if not link.is_symlink():
        link.symlink_to(ROOT)
    return os.pathsep.join(filter(None, [str(link.parent), os.environ.get("PYTHONPATH")]))


def figures(out: Path, name: str) -> Any:
    """What a step left to keep."""
    if name == "preflight":
        file = out / "runs" / "preflight" / "preflight.json"
        return json.loads(file.read_text()) if file.exists() else None
    if name == "demo":
        file = out / "runs" / "demo" / "metrics.jsonl"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else None
    if name == "step":
        lines = [line for line in (out / "step.txt").read_text().splitlines() if line.startswith("{")]
        return json.loads(lines[-1]) if lines else None
    return None


def machine() -> dict[str, Any]:
    """What the steps ran on."""
    import torch

    names = ["torch", "transformers", "accelerate", "peft", "trl", "flash-linear-attention", "causal-conv1d", "triton"]
    cuda = torch.cuda.is_available()
    return {
        "python": platform.python_version(),
        "cpus": os.cpu_count(),
        "gpu": torch.cuda.get_device_name() if cuda else None,
        "gpu_bytes": torch.cuda.get_device_properties(0).total_memory if cuda else None,
        "cuda": torch.version.cuda,
        "packages": {name: _version(name) for name in names},
        "when": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def _version(name: str) -> str | None:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(name)
    except PackageNotFoundError:
        return None


def report(out: Path, steps: list[dict[str, Any]], cpu: bool) -> str:
    """The page for a reader."""
    on = json.loads((out / "machine.json").read_text())
    shown = "the CPU form, with tiny shapes: it shows that the steps run, and nothing of a GPU" if cpu else on["gpu"]
    lines = ["# What was shown", "", f"On {shown}; torch {on['packages']['torch']}, {on['when']}.", ""]
    lines += ["| step | ended | seconds |", "|---|---|---|"]
    lines += [f"| {each['name']} | {each['status'] or 'well'} | {each['seconds']} |" for each in steps]
    found = {each["name"]: each["figures"] for each in steps}
    if found["preflight"]:
        lines += ["", "## Preflight", "", "| check | | found | mend |", "|---|---|---|---|"]
        lines += [f"| {row['name']} | {row['state']} | {row['found']} | {row['mend']} |" for row in found["preflight"]]
    if found["step"]:
        measured = found["step"]["measured"]
        lines += ["", "## An update", "", "| stage | seconds |", "|---|---|"]
        lines += [f"| {stage} | {seconds} |" for stage, seconds in measured["seconds"].items()]
        lines += ["", f"Peak {measured['peak_bytes'] / 2**30:.1f} GiB, other {measured['other_share']:.1%}."]
    if found["demo"]:
        lines += ["", "## The demo", "", "| update | reward | gradient norm | sampler against trainer | seconds |"]
        lines += ["|---|---|---|---|---|"]
        for row in found["demo"]:
            gap = row["sampling/logp_difference"]
            lines.append(
                f"| {row['update']} | {row['reward']:.3f} | {row['grad_norm']:.3f} | {gap:.1e} "
                f"| {row['seconds/update']:.1f} |"
            )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
