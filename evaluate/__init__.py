"""Evaluation: one harness for every model, its metrics, and the paper's tables."""

from sqale_grpo import rollout  # noqa: F401 first: it sets what libraries read when they are imported
