"""The demo: a tiny policy that stands in for a pretrained checkpoint, and the program that trains it."""

from sqale_grpo import rollout  # noqa: F401 first: it sets what libraries read when they are imported
