"""The programs: how they are found, what they load before they need it, and how each of them ends."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sqale_grpo import commands
from sqale_grpo.env.errors import UserError, first_line
from sqale_grpo.env.program import run_program
from tests.conftest import ROOT

HEAVY = ("torch", "transformers", "trl", "datasets", "vllm")
LIGHT = [*(f"{name} --help" for name in commands.COMMANDS), "train --keys", "evaluate --keys", "agent build --help"]
LIGHT += ["train recipe corpus/sqale --dry-run", "evaluate eval/sqale --dry-run", "train recip", "evaluate eval/sqal"]


def run(*words: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *words], cwd=cwd, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("words", LIGHT)
def test_what_needs_no_model_loads_nothing_heavy(words: str, tmp_path: Path) -> None:
    program = (
        "import sys; from sqale_grpo.commands import main\n"
        "try: main(sys.argv[1:])\n"
        "except SystemExit: pass\n"
        f"print('loaded', [name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = run("-c", program, *words.split(), cwd=tmp_path)
    assert done.stdout.splitlines()[-1] == "loaded []", done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.iterdir()), "it writes nothing"


@pytest.mark.parametrize("name", commands.COMMANDS)
def test_a_command_of_before_is_answered_by_its_new_name(name: str) -> None:
    done = run("-m", name)
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert f"`python -m {name}` is now `sqale-grpo {name}`" in done.stderr


def test_another_package_keeps_its_own_name(tmp_path: Path) -> None:
    """Hugging Face's ``evaluate``, which many have beside this project, and whatever is called as a folder here."""
    names = sorted({*commands.COMMANDS, "rollout", "sampler", "settings"})
    for name in names:
        (tmp_path / f"{name}.py").write_text("whose = 'another'\n")
    program = (
        "import importlib, sys\n"
        "import sqale_grpo.commands\n"
        "for name in sys.argv[1:]:\n"
        "    importlib.import_module(f'sqale_grpo.{name}')\n"
        "    assert importlib.import_module(name).whose == 'another', name\n"
    )
    done = run("-c", program, *names, cwd=tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", commands.COMMANDS)
def test_every_command_is_a_module_with_help_and_an_example(name: str, tmp_path: Path) -> None:
    done = run("-m", f"sqale_grpo.{name}", "--help", cwd=tmp_path)
    assert done.returncode == 0 and f"usage: sqale-grpo {name}" in done.stdout.replace(
        "sqale_agent.py", "sqale-grpo agent"
    )
    assert done.stdout.count(f"sqale-grpo {name}") + done.stdout.count("sqale_agent.py --") >= 2, "no example"


def test_ask_is_the_agents_command(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--model", "x", "--db", "gone.sqlite", "--question", "How many?"]
    said = [(commands.main([name, *words]), capsys.readouterr().err) for name in ("ask", "agent")]
    assert said[0] == said[1] and said[0][0] == 2 and "gone.sqlite" in said[0][1]


def test_help_names_every_command_and_a_mistake_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert commands.main([]) == commands.main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert all(f"  {name} " in shown for name in commands.COMMANDS)
    assert commands.main(["trian"]) == 2
    assert capsys.readouterr().err == "error: there is no command 'trian'; did you mean train?\n"


class Failed(UserError):
    exit_status = 1


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (UserError("a file is missing:\n  name one"), 2, "error: a file is missing: name one\n"),
        (Failed("3 of 4 failed"), 1, "error: 3 of 4 failed\n"),
        (
            OSError(28, "No space left on device", "x"),
            2,
            "error: x: no space left on device: free some room there, or choose another disk; "
            "what is written stays, and the same command goes on\n",
        ),
        (UserError("a cell holds \x1b[2J"), 2, "error: a cell holds \\x1b[2J\n"),
        (KeyboardInterrupt(), 130, "\nthe same command goes on\n"),
    ],
)
def test_each_end_has_its_status_and_one_sentence(
    error: BaseException, status: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails() -> int:
        raise error

    assert run_program(fails, "the same command goes on") == status
    assert capsys.readouterr().err == said


def test_a_fault_of_the_project_keeps_its_traceback_and_a_mistake_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ZeroDivisionError):
        run_program(lambda: 1 // 0)
    monkeypatch.setenv("SQALE_GRPO_TRACEBACK", "1")
    with pytest.raises(Failed):
        run_program(lambda: (_ for _ in ()).throw(Failed("why")))


def test_a_package_that_is_not_installed_is_named_with_its_remedy(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_program(lambda: __import__("no_such_package.part")) == 2
    assert "needs the package no_such_package; install it: pip install 'sqale-grpo[train]'" in capsys.readouterr().err


def test_a_reader_that_has_gone_ends_a_program_in_silence() -> None:
    done = subprocess.run(
        f"{sys.executable} -m sqale_grpo.train --keys | head -1; exit ${{PIPESTATUS[0]}}",
        shell=True, executable="/bin/bash", cwd=ROOT, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.stderr == "" and done.returncode in (0, 141)  # 0: all was written before the reader went


@pytest.mark.parametrize(
    ("words", "after"),
    [
        ("demo", 0.05),
        ("demo", 0.2),
        ("demo", 0.6),
        ("demo", 1.5),
        ("evaluate eval/demo model=demo", 0.05),
        ("evaluate eval/demo model=demo", 2.0),
    ],
)
def test_ctrl_c_at_any_stage_is_no_traceback(words: str, after: float, tmp_path: Path) -> None:
    """Python itself says so in its first moments, before any program runs; from then on it is ours."""
    name, *more = words.split()
    program = [
        sys.executable,
        "-m",
        f"sqale_grpo.{name}",
        *more,
        f"output={tmp_path}",
        f"corpus.prepared={tmp_path / 'prepared'}",
    ]
    process = subprocess.Popen(program, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while not _runs(process.pid):
        time.sleep(0.01)
    time.sleep(after)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    # Interrupted in code that a library makes of text, Python ends by the signal itself; a shell calls both 130.
    assert process.returncode in (130, -signal.SIGINT) and "Traceback" not in said, said
    assert said.splitlines()[-1] == commands.AGAIN


def _runs(pid: int) -> bool:
    """Whether the program's frame is up: its command loads what the frame does not, SQLite."""
    maps = Path(f"/proc/{pid}/maps")
    return maps.exists() and "_sqlite3" in maps.read_text() or not os.path.exists(f"/proc/{pid}")


def test_the_first_line_of_an_error_is_one_that_says_something() -> None:
    assert first_line(ValueError("\n\n  what is wrong \n and more")) == "what is wrong"
    assert first_line(ValueError()) == "ValueError"
