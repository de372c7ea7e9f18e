"""Which questions come when: masked length, buckets, mixture schedule, submit gate. Imports no torch."""

from sqale_grpo.curriculum.batches import Curriculum
from sqale_grpo.curriculum.buckets import Buckets, masked_length, masked_sql
from sqale_grpo.curriculum.mixture import MixtureSchedule, gate_closed, gate_probability

__all__ = [
    "Buckets",
    "Curriculum",
    "MixtureSchedule",
    "gate_closed",
    "gate_probability",
    "masked_length",
    "masked_sql",
]
