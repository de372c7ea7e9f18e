"""Install the project into a virtual environment: python3 scripts/install.py VENV [EXTRA ...]

`make` runs it before anything else. Without an NVIDIA GPU it takes the CPU build of torch (0.2 GB instead of 2.7 GB
with CUDA's libraries). What keeps it from installing is one sentence. Python 3.6 can read it, so that an old Python is
told so: no annotations.
"""

import os
import re
import subprocess
import sys

OLDEST = (3, 11)
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CONSTRAINTS = os.path.join(ROOT, "constraints.txt")
CPU_INDEX = "https://download.pytorch.org/whl/cpu"  # PyTorch's own, for the builds that need no GPU
PROGRESS = re.compile(r"ERROR: (.*)")


class Failed(Exception):
    """What keeps the project from being installed, and what to do about it."""


def main(arguments):
    """Install; returns 0, or 2 after one sentence on standard error."""
    venv, extras = arguments[0], arguments[1:]
    try:
        check_python(sys.version_info, sys.executable)
        python = make_venv(venv)
        pip = [python, "-m", "pip", "install", "--disable-pip-version-check", "-c", CONSTRAINTS]
        pip += [] if sys.stderr.isatty() else ["--quiet"]
        if extras and not has_gpu() and not imports(python, "torch"):
            say("no NVIDIA GPU here: installing the CPU build of torch (about 0.2 GB)")
            install_cpu_torch(pip)
        say(f"installing sqale-grpo[{','.join(extras)}] into {venv}")
        run_pip(pip + ["-e", f"{ROOT}[{','.join(extras)}]"])
    except Failed as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    except KeyboardInterrupt:
        sys.stderr.write("\nstopped; the same command goes on\n")
        return 130
    return 0


def check_python(version, executable):
    """Failed for a Python that is too old."""
    if tuple(version[:2]) < OLDEST:
        found = ".".join(str(part) for part in version[:2])
        raise Failed(
            f"{executable} is Python {found} and the project needs 3.11 or newer; name another one: "
            "make PYTHON=python3.12"
        )


def make_venv(venv):
    """The Python of the virtual environment, which is made where there is none."""
    python = os.path.join(venv, "bin", "python")
    asked = [python, "-m", "pip", "--version"]
    if os.path.exists(python) and subprocess.call(asked, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) == 0:
        return python
    made = subprocess.run([sys.executable, "-m", "venv", venv], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if made.returncode:
        said = made.stdout.decode("utf-8", "replace").strip()
        if "ensurepip" in said or "No module named" in said:
            raise Failed(
                f"{sys.executable} cannot make virtual environments; install its venv module "
                "(Debian, Ubuntu: apt install python3-venv)"
            )
        why = said.splitlines()[-1] if said else f"exit status {made.returncode}"
        raise Failed(f"no virtual environment could be made in {venv} ({why})")
    return python


def has_gpu():
    """Whether the machine has an NVIDIA GPU with a driver."""
    return os.path.exists("/proc/driver/nvidia/version") or os.path.exists("/dev/nvidiactl")


def imports(python, name):
    """Whether the environment has a package."""
    program = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({name!r}) is None)"
    return subprocess.call([python, "-c", program]) == 0


def install_cpu_torch(pip):
    """The CPU build of the tested version; where PyTorch's own index cannot be reached, whatever pip is set up for."""
    with open(CONSTRAINTS) as lines:
        pinned = next(line.strip() for line in lines if line.startswith("torch=="))
    cpu = ["--retries", "1", "--extra-index-url", CPU_INDEX, pinned + "+cpu"]
    if sys.platform != "linux":  # elsewhere torch's ordinary build is the CPU's
        cpu = [pinned]
    if subprocess.call(pip + cpu, stdout=subprocess.DEVNULL if "--quiet" in pip else None, stderr=subprocess.DEVNULL):
        say(f"its CPU build could not be had: taking {pinned} as pip finds it, which may be 2.7 GB with CUDA")
        run_pip(pip + [pinned])


def run_pip(command):
    """Run pip; Failed with its own last error."""
    done = subprocess.Popen(command, stderr=subprocess.PIPE)
    said = []
    for raw in done.stderr or ():
        line = raw.decode("utf-8", "replace")
        said += PROGRESS.findall(line)
        if not line.startswith(("WARNING: Location", "ERROR")):
            sys.stderr.write(line)
    if done.wait():
        raise Failed(explain(said))


def explain(errors):
    """One sentence for pip's errors."""
    text = " ".join(errors)
    if any(part in text for part in ("Could not find a version", "No matching distribution", "conflicting")):
        return f"pip cannot get a package ({errors[0].strip()}); is there a network, and does pip's index have it?"
    if "Failed building wheel" in text or "subprocess-exited-with-error" in text:
        return f"a package had to be compiled and was not ({errors[0].strip()}); install a C compiler"
    if "No space left" in text:
        return "the disk is full; an installation takes about 2 GB"
    return f"pip failed ({errors[0].strip() if errors else 'it says why above'})"


def say(text):
    """One line of progress."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
