"""Rollouts: episodes played by a policy, token in, token out, with transformers, vLLM or a server."""

import os

# Read by OpenMP and the libraries when they are first imported, so they are set before anything imports torch.
# Waiting threads that spin take the other core from the sandbox's workers: a decode step took 45 ms instead of 6.9 ms.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
# `rollout_func` is marked experimental; the tested versions are pinned in constraints.txt.
os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
