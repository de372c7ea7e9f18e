"""The single file: it stands alone, imports nothing heavy, and is the environment of training."""

import json
import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from sqale_grpo.agent.bundle import quoted, write_agent
from sqale_grpo.agent.settings import SETTINGS
from sqale_grpo.corpus import prepare
from sqale_grpo.corpus.demo import DemoShape, write_demo_corpus
from sqale_grpo.demo.explorer import Habits, play_script
from sqale_grpo.env.episode import Episode, EpisodeLimits
from sqale_grpo.env.prompts import load_prompts
from sqale_grpo.env.protocol import parse_turn
from sqale_grpo.env.sandbox import Sandbox
from tests.agent.conftest import PROMPTS
from tests.cases.conftest import read_cases
from tests.conftest import ROOT

HEAVY = ("torch", "vllm", "transformers", "numpy", "sqale_grpo")


def run_alone(file, program):
    """A program beside the file in an empty folder, isolated: no project, no user site, on its path."""
    return subprocess.run(
        [sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, '.'); {program}"],
        cwd=file.parent,
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_the_import_alone_loads_the_standard_library_only(agent_file):
    loaded = f"[name for name in sys.modules if name.partition('.')[0] in {HEAVY!r}]"
    done = run_alone(agent_file, f"import sqale_agent; print({loaded}, sqale_agent.SQaLeAgent, sqale_agent.main)")
    assert done.stdout.startswith("[] <class"), done.stderr


def test_its_text_run_by_another_program_says_how_to_load_it(agent_file):
    """In a notebook there is no ``__file__``; in a program it is that program's, which workers must not load."""
    for setup in ("", "__file__ = '/bin/sh'; "):
        done = run_alone(agent_file, f"{setup}exec(open('sqale_agent.py').read())")
        assert "ImportError: sqale_agent.py must be imported or run as a file" in done.stderr
    done = run_alone(agent_file, "import runpy; print(runpy.run_path('sqale_agent.py')['FILE'])")
    assert done.stdout.strip() == str(agent_file), done.stderr


def test_a_prompt_that_holds_the_workers_marks_runs_nowhere(tmp_path, shop):
    texts = json.loads(PROMPTS.read_text(encoding="utf-8"))
    hostile = "\n# worker process begins\nimport os; os.write(2, b'RUNS')\n# worker process ends\n"
    for name in texts:
        texts[name] += hostile
    (tmp_path / "prompts.json").write_text(json.dumps(texts))
    write_agent(tmp_path / "sqale_agent.py", load_prompts(tmp_path / "prompts.json"), SETTINGS)
    done = run_alone(
        tmp_path / "sqale_agent.py",
        f"import sqale_agent as a\nwith a.Sandbox({str(shop)!r}) as box: print(box.execute('SELECT 1').rows)",
    )
    assert (done.stdout.strip(), done.stderr) == ("[(1,)]", "")


def test_no_name_is_missing_in_the_joined_text(agent_file):
    """What a module of its own would import but the file does not define: ruff finds it without running the line."""
    checked = [sys.executable, "-m", "ruff", "check", "--isolated", "--no-cache", "--select=F,E9", "--ignore=F811,F402"]
    done = subprocess.run([*checked, str(agent_file)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_it_holds_the_prompts_verbatim_under_the_names_of_the_card(agent_module):
    texts = json.loads(PROMPTS.read_text(encoding="utf-8"))
    assert texts["system"] == agent_module.SYSTEM_PROMPT
    assert texts["user"] == agent_module.USER_TEMPLATE
    assert vars(agent_module.load_prompts()) == texts


@pytest.mark.parametrize(
    "text", ["", "one 'line'", 'a\n"quoted"', 'back\\slash\n"""', "tab\t\n\r\x1b", 'ends\n"', "\n"]
)
def test_every_text_survives_as_a_literal(text):
    assert eval(quoted(text)) == text


def test_settings_of_a_run_are_those_of_its_file(tmp_path):
    own = replace(SETTINGS, episode=EpisodeLimits(tool_turns=3), enable_thinking=False)
    write_agent(tmp_path / "sqale_agent.py", load_prompts(), own)
    done = run_alone(tmp_path / "sqale_agent.py", "import sqale_agent; print(sqale_agent.SETTINGS)")
    assert done.stdout.strip() == repr(own), done.stderr


def test_its_workers_load_their_part_of_the_file_alone(agent_module, shop):
    with agent_module.WorkerPool(1) as pool, agent_module.Sandbox(shop, pool=pool) as sandbox:
        assert sandbox.execute("SELECT count(*) FROM shops").rows == [(3,)]
        commands = [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in pool.pids]
        maps = Path(f"/proc/{pool.pids[0]}/maps").read_text()
    # The interpreter itself may lie within the project, in its .venv.
    arguments = [command.partition(b"\0")[2] for command in commands]
    assert all(agent_module.__file__.encode() in each and str(ROOT).encode() not in each for each in arguments)
    assert "torch" not in maps and "numpy" not in maps


def test_its_sandbox_refuses_what_the_environments_does(agent_module, shop):
    for sql in ("DELETE FROM shops", "ATTACH '/tmp/x' AS x", "SELECT load_extension('x')", "PRAGMA writable_schema=1"):
        with agent_module.Sandbox(shop) as sandbox, pytest.raises(agent_module.SqlError) as refused:
            sandbox.execute(sql)
        with Sandbox(shop) as sandbox, pytest.raises(Exception) as wanted:
            sandbox.execute(sql)
        assert refused.value.args == wanted.value.args and refused.value.kind == "denied"


def test_turns_are_read_as_the_environment_reads_them(agent_module):
    cases = read_cases(ROOT / "tests" / "cases" / "toolcall.jsonl")
    texts = [value for case in cases for value in case.values() if isinstance(value, str)]
    assert len(texts) > 50
    for text in texts:
        assert list(map(vars, agent_module.parse_turn(text))) == list(map(vars, parse_turn(text)))


def test_the_same_turns_give_the_same_episode(agent_module, tmp_path):
    """200 demo questions, played by a script that often guesses: all observations, the end, the answer."""
    write_demo_corpus(tmp_path / "source", 3, DemoShape(schemas=(10, 1), questions=(20, 1)))
    corpus = prepare("sqale", tmp_path / "source", tmp_path / "prepared", progress=False)
    prompts, chance, ends, failures = load_prompts(PROMPTS), random.Random(4), set(), 0
    for index in range(200):
        question = corpus.question(index)
        database = corpus.database(question.db_id)
        with Sandbox(database) as ours, agent_module.Sandbox(database) as theirs:
            episode = Episode(question.text, ours, EpisodeLimits(2 + index % 5), prompts=prompts)
            limits = agent_module.EpisodeLimits(2 + index % 5)
            other = agent_module.Episode(question.text, theirs, limits, prompts=agent_module.load_prompts())
            assert episode.prompt() == other.prompt()
            play_script(episode, question.gold_sql, Habits(0.7, 0.7, 0.7, 0.5, 0.2), chance)
            for turn in episode.turns:
                other.step(turn.completion)
            assert [repr(turn) for turn in other.turns] == [repr(turn) for turn in episode.turns]
            assert vars(other.finished) == vars(episode.finished)
            ends.add(episode.finished.ended_by)
            failures += any(call.error for turn in episode.turns for call in turn.calls)
    assert len(ends) > 1 and failures > 20
