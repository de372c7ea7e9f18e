"""Which tables an episode's database holds, and the database built from them."""

from sqale_grpo.sampler.choose import choose_tables, select_tables
from sqale_grpo.sampler.episode import EpisodeDatabase, build_database, open_episode_database

__all__ = ["EpisodeDatabase", "build_database", "choose_tables", "open_episode_database", "select_tables"]
