"""The processes that build counter-databases, as the one that asks sees them (``reward.copy_worker``)."""

import os
from collections.abc import Sequence
from pathlib import Path

from sqale_grpo.env.builders import Builders
from sqale_grpo.env.limits import SqlError
from sqale_grpo.reward.counter import CopyPlan
from sqale_grpo.reward.counter_build import NoCopy

BUILD_SECONDS = 60.0  # ``prepare`` chooses no copy that takes nearly so long
ATTEMPTS = 2  # a process that the machine ends

copy_builders = Builders("sqale_grpo.reward.copy_worker")


def build_copy(source: str, plan: CopyPlan, seed: int, others: Sequence[str], target: Path) -> frozenset[str]:
    """Write a copy of the database at the URI ``source`` to ``target``; the tables of ``others`` that it lacks.

    Raises NoCopy where there is none, SqlError("machine") where that says nothing about the database.
    """
    parts = (tuple(plan.tables), dict(plan.values), plan.joined)
    request = (source, parts, seed, list(others), os.fsencode(target))
    try:
        left_out, missing, failure = copy_builders.ask(request, BUILD_SECONDS, ATTEMPTS)
    except (TimeoutError, EOFError) as error:
        failure, missing, left_out = str(error), "", []
    if failure:
        raise SqlError("machine", f"counter-database {seed} could not be built: {failure}")
    if missing:
        raise NoCopy(missing)
    return frozenset(left_out)
