"""Sweeps of training runs: one W&B sweep file, run with W&B's agent or without it."""
