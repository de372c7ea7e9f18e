"""Training: TRL's GRPO trainer with this project's questions, episodes, rewards and checkpoints."""

from sqale_grpo import rollout  # noqa: F401 first: it sets what libraries read when they are imported
