"""Which questions come when: masked length, buckets, mixture schedule, submit gate. Imports no torch."""

from curriculum.batches import Curriculum
from curriculum.buckets import Buckets
from curriculum.gate import gate_closed, gate_probability
from curriculum.masking import masked_length, masked_sql
from curriculum.mixture import MixtureSchedule

__all__ = [
    "Buckets",
    "Curriculum",
    "MixtureSchedule",
    "gate_closed",
    "gate_probability",
    "masked_length",
    "masked_sql",
]
