"""The launch scripts: what they would start, as accelerate itself reads it, and what they refuse."""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

SCRIPTS = ROOT / "scripts" / "launch"
RECIPE = ["configs/recipe.yaml", "configs/corpus/sqale.yaml"]
# script, its own arguments -> processes, machines, DeepSpeed or FSDP
LAUNCHES = {
    "single.sh": ([], 1, 1, "NO"),
    "ddp.sh": (["3"], 3, 1, "MULTI_GPU"),
    "zero2.sh": (["8"], 8, 1, "DEEPSPEED"),
    "zero3.sh": (["4"], 4, 1, "DEEPSPEED"),
    "fsdp2.sh": (["8"], 8, 1, "FSDP"),
    "multinode.sh": (["2", "8", "1", "10.0.0.1"], 16, 2, "DEEPSPEED"),
    "slurm_server.sbatch": ([], 3, 1, "DEEPSPEED"),
}


def dry_run(script: str, *words: str, cwd: Path = ROOT, **more: str) -> subprocess.CompletedProcess[str]:
    # The scripts take python and accelerate from the path, as of an active environment.
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    # A command of the pages may report to W&B, whose key this machine has not.
    environment = {**os.environ, "DRY_RUN": "1", "PATH": path, "WANDB_MODE": "offline", **more}
    environment.pop("SLURM_SUBMIT_DIR", None)
    command = ["bash", str(SCRIPTS / script), *words]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=120)


def test_every_script_is_tested():
    assert {path.name for path in SCRIPTS.iterdir()} == {*LAUNCHES, "common.sh"}


@pytest.mark.full
@pytest.mark.parametrize("script", LAUNCHES)
def test_accelerate_reads_the_command(script):
    from accelerate.commands.config.config_args import load_config_from_file
    from accelerate.commands.launch import launch_command_parser

    own, processes, machines, kind = LAUNCHES[script]
    done = dry_run(script, *own, *RECIPE, "seed=7", "--resume")
    assert done.returncode == 0, done.stderr
    command = shlex.split(done.stdout.splitlines()[-1])
    assert command[:2] == ["accelerate", "launch"]
    parsed = launch_command_parser().parse_args(command[2:])
    file = load_config_from_file(str(ROOT / parsed.config_file))
    assert (parsed.num_processes or file.num_processes) == processes
    assert (parsed.num_machines or file.num_machines) == machines
    assert str(getattr(file.distributed_type, "value", file.distributed_type)) == kind
    assert parsed.module and parsed.training_script == "sqale_grpo.train"
    assert parsed.training_script_args[:4] == [*RECIPE, "seed=7", "--resume"]
    if machines > 1:
        assert (parsed.machine_rank, parsed.main_process_ip) == (1, "10.0.0.1")


@pytest.mark.parametrize(
    ("visible", "used"), [(None, "0"), ("5", "5"), ("3,4", "3"), ("GPU-a1,GPU-b2", "GPU-a1"), ("", "")]
)
def test_one_process_sees_one_gpu(tmp_path, visible, used):
    """accelerate is a stand-in that tells what it would see."""
    for name, text in (("accelerate", 'echo "sees $CUDA_VISIBLE_DEVICES"'), ("nvidia-smi", "echo 'GPU 0: one'")):
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    bin = Path(sys.executable).parent
    more = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    done = dry_run("single.sh", "configs/demo.yaml", DRY_RUN="0", PATH=f"{tmp_path}:{bin}:{os.environ['PATH']}", **more)
    assert done.stdout == f"sees {used}\n", done.stderr


@pytest.mark.parametrize(("word", "option"), [("train.heal=2", "2"), ("train.heal=0", None), ("seed=1", None)])
def test_a_run_that_may_heal_is_started_again_by_its_launcher(word, option):
    for script, own in (("zero2.sh", ["8"]), ("multinode.sh", ["2", "8", "1", "host"])):
        command = shlex.split(dry_run(script, *own, *RECIPE, word).stdout.splitlines()[-1])
        assert ("--max_restarts" in command) == (option is not None)
        assert option is None or command[command.index("--max_restarts") + 1] == option


def test_the_server_job_serves_what_it_trains():
    lines = dry_run("slurm_server.sbatch", *RECIPE, "seed=7", "train.heal=2").stdout.splitlines()
    assert "--seed 7" in lines[0] and "--max_restarts 2" in lines[1]
    lines = dry_run("slurm_server.sbatch", *RECIPE).stdout.splitlines()
    server, training = shlex.split(lines[0]), lines[1]
    assert server[:3] == ["vllm", "serve", "Qwen/Qwen3.5-2B"] and "rollout.backend=vllm_server" in training
    assert f"http://127.0.0.1:{server[server.index('--port') + 1]}" in training


@pytest.mark.parametrize(
    ("script", "words", "says"),
    [
        ("ddp.sh", ["7", *RECIPE], "144 episodes do not divide by 7 processes"),
        ("zero2.sh", ["8", "configs/recip.yaml"], "did you mean configs/recipe.yaml"),
        ("zero3.sh", ["eight", *RECIPE], "GPUS must be a whole number, not eight"),
        ("fsdp2.sh", ["8"], "usage: scripts/launch/fsdp2.sh GPUS CONFIG"),
        ("multinode.sh", ["2", "8", "2", "host", *RECIPE], "the ranks of 2 machines are 0 to 1"),
        ("zero2.sh", ["0", *RECIPE], "do not divide by 0 processes"),
        ("multinode.sh", ["08", "8", "07", "host", *RECIPE], "MACHINES must be a whole number, not 08"),
        ("single.sh", [*RECIPE, "train.betta=1"], "did you mean 'train.beta'"),
    ],
)
def test_a_launch_that_cannot_work_is_refused_before_it_starts(script, words, says):
    done = dry_run(script, *words)
    assert done.returncode == 2 and says in done.stderr
    assert "accelerate" not in done.stdout


@pytest.mark.parametrize(
    ("script", "words", "visible", "says"),
    [
        ("zero2.sh", ["8", *RECIPE], "", "8 GPUs asked for, and there are 2 here"),
        ("ddp.sh", ["2", *RECIPE], "1", "2 GPUs asked for, and there are 1 here"),
        ("multinode.sh", ["2", "4", "0", "host", *RECIPE], "", "4 GPUs asked for"),
        ("slurm_server.sbatch", RECIPE, "", "4 GPUs asked for"),
    ],
)
def test_more_gpus_than_there_are_is_refused(tmp_path, script, words, visible, says):
    """nvidia-smi is a stand-in that lists two; nothing is launched, since accelerate would not say it as soon."""
    smi = tmp_path / "nvidia-smi"
    smi.write_text("#!/bin/sh\necho 'GPU 0: one'\necho 'GPU 1: two'\n")
    smi.chmod(0o755)
    done = dry_run(script, *words, DRY_RUN="0", CUDA_VISIBLE_DEVICES=visible, PATH=f"{tmp_path}:{os.environ['PATH']}")
    assert done.returncode == 2 and says in done.stderr and not done.stdout


def test_a_job_submitted_from_elsewhere_stops(tmp_path):
    command = ["bash", str(SCRIPTS / "slurm_server.sbatch"), *RECIPE]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env={"PATH": os.environ["PATH"]})
    assert done.returncode == 2 and "common.sh" in done.stderr and "accelerate" not in done.stderr


def test_a_script_finds_the_project_from_anywhere(tmp_path):
    assert dry_run("single.sh", *RECIPE, cwd=tmp_path).returncode == 0


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="shellcheck is not installed")
def test_shellcheck_finds_nothing():
    files = [str(path) for path in sorted(SCRIPTS.iterdir())]
    done = subprocess.run(["shellcheck", "-x", *files], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
