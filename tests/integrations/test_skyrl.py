"""SkyRL-gym's own registry makes our environment and plays it, in an environment that has SkyRL-gym and no trainer."""

import os
import subprocess
import sys

import pytest

from sqale_grpo.corpus import PreparedCorpus
from tests.conftest import ROOT

PROGRAM = """
import json, sys
import skyrl_gym
from skyrl_gym.envs import register

assert "torch" not in sys.modules
corpus = sys.argv[1]
register(id="sqale", entry_point="sqale_grpo.integrations.skyrl:SqaleEnv")
config = {"corpus": corpus, "seed": 7}


def say(tool, sql):
    return "<think>so</think>" + json.dumps({"tool": tool, "args": {"sql": sql}})


for number in range(20):
    for update, gated in ((0, True), (1000, False)):
        env = skyrl_gym.make("sqale", env_config=config, extras={"extra_info": {"question": number, "update": update}})
        prompt, _ = env.init([{"role": "user", "content": "not ours"}])
        assert [each["role"] for each in prompt] == ["system", "user"] and env.max_turns == 7
        gold = env.world.question.gold_sql
        if gated:
            refused = env.step(say("submit_sql", gold))
            assert not refused["done"] and "run exactly this query" in refused["observations"][0]["content"]
        assert not env.step(say("run_query", gold))["done"]
        last = env.step(say("submit_sql", gold))
        assert last["done"] and last["reward"] == 3.0 and last["metadata"]["tier"] == "equivalent", last
        assert env.get_metrics()["equivalent"] == 1.0 and env.get_metrics()["turns"] == 2 + gated
        try:
            env.step("again")
            raise SystemExit("a step after the end is no error")
        except RuntimeError as error:
            assert "has ended by submit_sql" in str(error)
        env.close()
env = skyrl_gym.make("sqale", env_config=config, extras={"extra_info": {"question": 0}})
env.init([])
last = env.step(say("submit_sql", "SELECT 'nobody'"))
assert last["done"] and 0.9 < last["reward"] < 1.2 and last["metadata"]["tier"] == "executable", last
env = skyrl_gym.make("sqale", env_config=config, extras={"extra_info": {"question": 0}})
env.init([])
turns = [env.step("I do not know") for _ in range(7)]
assert [each["done"] for each in turns] == [False] * 6 + [True]
assert turns[-1]["metadata"]["tier"] == "invalid" and turns[-1]["reward"] == 0.0, turns[-1]
for wrong, says in (
    ({"question": 10**6}, "no question number 1000000"),
    ({}, "extra_info of the task lacks the key 'question'"),
):
    try:
        skyrl_gym.make("sqale", env_config=config, extras={"extra_info": wrong})
        raise SystemExit(f"{wrong} is no error")
    except ValueError as error:
        assert says in str(error), error
try:
    skyrl_gym.make("sqale", env_config={"corpus": corpus + "/nothing"}, extras={"question": 0})
except ValueError as error:
    assert "prepare" in str(error), error
print("40 episodes")
"""


@pytest.mark.integrations
def test_skyrl_gym_plays_it(corpus: PreparedCorpus) -> None:
    python = ROOT / "build" / "integrations" / "skyrl" / "bin" / "python"
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    clean["PYTHONPATH"] = str(ROOT / "build" / "types")
    words = [str(python), "-W", "error::UserWarning", "-c", PROGRAM, str(corpus.directory)]
    done = subprocess.run(words, cwd=corpus.directory, env=clean, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.splitlines()[-1] == "40 episodes" and sys.executable != str(python)
