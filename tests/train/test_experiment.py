"""The parts of an experiment: what the configuration says reaches the episodes."""

from env.sandbox import default_pool
from train.config_load import load_config
from train.experiment import episode_settings


def test_the_environments_keys_reach_the_episodes() -> None:
    overrides = ["env.workers=3", "env.max_rows=7", "env.memory_mb=64", "env.tool_turns=2", "env.cell_chars=9"]
    settings = episode_settings(load_config([], overrides), "full", 2.5)
    assert settings.workers.homes == 3
    assert (settings.limits.seconds, settings.limits.rows, settings.limits.memory_mb) == (2.5, 7, 64)
    assert (settings.episode.tool_turns, settings.episode.cell_chars) == (2, 9)
    again = episode_settings(load_config([], ["env.workers=3"]), "sampled", 30.0)
    assert again.workers is settings.workers
    assert episode_settings(load_config([]), "sampled", 5.0).workers is default_pool()
