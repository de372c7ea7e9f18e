"""SkyRL-gym: an episode as a ``BaseTextEnv``, text in, text out, with the protocol's own prompts and reward.

    from skyrl_gym.envs import register
    register(id="sqale", entry_point="sqale_grpo.integrations.skyrl:SqaleEnv",
             kwargs={"env_config": {"corpus": "data/prepared/demo-train"}})

A row of the dataset names its task in ``extra_info``: ``question`` (number or id in the prepared corpus) and, where
wanted, ``update`` (of the gate, phrasing and tables; without it the gate is open and they stay the same) and
``candidate``. SkyRL shows an environment one candidate, so no answer gets the agreement bonus of its group: the reward
is the outcome's with agreement left open.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from sqale_grpo.corpus import PreparedCorpus, open_prepared
from sqale_grpo.env.episode import Finished
from sqale_grpo.env.errors import UserError
from sqale_grpo.integrations.tested import OPEN, check_version
from sqale_grpo.rollout.world import World, open_world
from sqale_grpo.settings.load import load_config

check_version("skyrl-gym", "0.4", "skyrl")

from skyrl_gym.envs.base_text_env import BaseTextEnv, BaseTextEnvStepOutput  # noqa: E402 - where it is missing is told

TIERS = ("equivalent", "executable", "parsable", "invalid", "void")

_corpus = lru_cache(maxsize=8)(open_prepared)


class SqaleEnv(BaseTextEnv):
    """One candidate's episode. ``init`` gives the prompt, ``step`` the next user turn, or the reward and the end."""

    def __init__(self, env_config: Any = None, extras: Mapping[str, Any] | None = None) -> None:
        """``env_config``: ``corpus`` (a prepared folder), and where wanted ``seed`` (42) and ``config``: names or files
        of configurations, the paper's recipe without. ``extras``: the task, see above.

        Raises ValueError for a task that is not there, a corpus that is not prepared, or a wrong configuration.
        """
        super().__init__()
        given, task = dict(env_config or {}), dict(extras or {})
        task |= task.get("extra_info") or {}
        try:
            prepared: PreparedCorpus = _corpus(str(given["corpus"]))
            config = load_config(list(given.get("config") or []))
            self.world: World = open_world(
                prepared,
                int(given.get("seed", 42)),
                int(task.get("update", OPEN)),
                task["question"],
                int(task.get("candidate", 0)),
                config,
            )
        except KeyError as missing:
            place = "extra_info of the task" if missing.args == ("question",) else "env_config"
            raise ValueError(f"{place} lacks the key {missing}") from missing
        except UserError as error:
            raise ValueError(str(error)) from error
        self.max_turns = config.env.tool_turns + 1

    def init(self, prompt: list[dict[str, str]]) -> tuple[list[dict[str, str]], dict[str, Any]]:
        """The first messages of the episode; those of the dataset's row are left out."""
        return self.world.prompt(), {}

    def step(self, action: str) -> BaseTextEnvStepOutput:
        """Take a completion. RuntimeError after the end."""
        self.turns += 1
        ended = self.world.step(action)
        if not isinstance(ended, Finished):
            told = [{"role": "user", "content": ended.text}]
            return BaseTextEnvStepOutput(observations=told, reward=0.0, done=False, metadata={})
        outcome = self.world.outcome()
        facts = {"tier": outcome.tier, "ended_by": ended.ended_by, "sql": ended.sql, "message": outcome.message}
        reward = 0.0 if outcome.tier == "void" else outcome.reward
        return BaseTextEnvStepOutput(observations=[], reward=reward, done=True, metadata=facts)

    def get_metrics(self) -> dict[str, Any]:
        """Turns, and for a finished episode its tier as shares that SkyRL averages."""
        metrics: dict[str, Any] = {"turns": self.turns}
        if self.world.episode.finished is not None:
            tier = self.world.outcome().tier
            metrics |= {name: float(tier == name) for name in TIERS}
        return metrics

    def close(self) -> None:
        """Close database and sandbox."""
        self.world.close()
