"""When an answer by vote is sure: the share of agreement from which it is given, calibrated on an evaluation.

An agent with several candidates gives the result that most of them gave, and none where their share is below a
threshold. The threshold is the one at which right answers less wrong ones are most: a wrong answer costs what a right
one is worth. What it then answers, and how often rightly, is measured on questions that did not choose it: each half
of them (by hash) with the threshold of the other. Rules and cost are ours.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqale_grpo.env.chance import key_int
from sqale_grpo.env.files import write_whole
from sqale_grpo.evaluate.metrics import Row, by_question, stable
from sqale_grpo.rollout.rates import wilson
from sqale_grpo.settings.evaluation import CALIBRATION


@dataclass(frozen=True)
class Voted:
    """A question's vote: how many of ``of`` candidates gave the most frequent result, and whether that is right.

    Of equally frequent results the one whose first candidate came first is taken, and that candidate's answer judged,
    as the agent does; 0 votes where no candidate's answer ran.
    """

    question_id: str
    votes: int
    of: int
    right: bool

    @property
    def share(self) -> float:
        """The agreement."""
        return self.votes / self.of


def votes_of(rows: Sequence[Row]) -> list[Voted]:
    """The votes of an evaluation's questions with a stable gold result; () where one has a single candidate."""
    groups = by_question(stable(rows))
    k = min(map(len, groups.values()), default=1)
    return [] if k < 2 else [_voted(question, group[:k]) for question, group in groups.items()]


def _voted(question_id: str, rows: Sequence[Row]) -> Voted:
    classes = [row["result_class"] for row in rows]
    known = [each for each in classes if each is not None]
    if not known:
        return Voted(question_id, 0, len(rows), False)
    most = max(known, key=lambda each: (known.count(each), -classes.index(each)))
    return Voted(question_id, known.count(most), len(rows), rows[classes.index(most)]["tier"] == "equivalent")


def thresholds(votes: Sequence[Voted]) -> list[float]:
    """Every share of agreement that tells candidates apart, lowest first."""
    k = votes[0].of
    return [number / k for number in range(1, k + 1)]


def best_threshold(votes: Sequence[Voted]) -> float:
    """The threshold at which right answers less wrong ones are most; of equal ones the highest."""
    return max(thresholds(votes), key=lambda at: (gain(votes, at), at))


def gain(votes: Sequence[Voted], threshold: float) -> int:
    """Right answers less wrong ones of what is answered at a threshold."""
    return sum(1 if vote.right else -1 for vote in votes if vote.share >= threshold)


def held_out(votes: Sequence[Voted]) -> list[tuple[Voted, bool]]:
    """Each question, and whether it is answered at the threshold that the half without it chose."""
    by_hash = sorted(votes, key=lambda vote: key_int("calibration", vote.question_id))
    halves = by_hash[::2], by_hash[1::2]
    if not all(halves):
        return []
    pairs = zip(halves, (best_threshold(halves[1]), best_threshold(halves[0])), strict=True)
    return [(vote, vote.share >= threshold) for half, threshold in pairs for vote in half]


def calibration(rows: Sequence[Row]) -> dict[str, Any] | None:
    """The threshold of an evaluation, what it answers, and the curve; None where it has one candidate a question."""
    votes = votes_of(rows)
    if not votes:
        return None
    threshold = best_threshold(votes)
    apart = held_out(votes)
    return {
        "threshold": threshold,
        "candidates": votes[0].of,
        "questions": len(votes),
        "accuracy_of_all": _rate(sum(vote.right for vote in votes), len(votes)),
        **_answered([(vote, vote.share >= threshold) for vote in votes]),
        "held_out": _answered(apart) if apart else None,
        "curve": [
            {"threshold": at, **_answered([(vote, vote.share >= at) for vote in votes])} for at in thresholds(votes)
        ],
        "by_agreement": [
            {
                "agreement": number / votes[0].of,
                "n": len(here),
                "accuracy": _rate(sum(v.right for v in here), len(here)),
            }
            for number in range(votes[0].of + 1)
            if (here := [vote for vote in votes if vote.votes == number])
        ],
    }


def _answered(pairs: Sequence[tuple[Voted, bool]]) -> dict[str, Any]:
    given = [vote for vote, answered in pairs if answered]
    return {
        "answered": _rate(len(given), len(pairs)),
        "accuracy": _rate(sum(vote.right for vote in given), len(given)) if given else None,
    }


def _rate(right: int, n: int) -> dict[str, Any]:
    """A rate with its 95% interval (Wilson)."""
    low, high = wilson(right, n)
    return {"value": right / n, "low": low, "high": high, "n": n}


def write_calibration(folder: Path, rows: Sequence[Row], identity: str) -> dict[str, Any] | None:
    """Write the calibration beside an evaluation's summary, where it has one; returns it without its curves."""
    found = calibration(rows)
    if found is None:
        return None
    text = json.dumps({"identity": identity, **found}, indent=1)
    write_whole(folder / CALIBRATION, text + "\n")
    return {name: value for name, value in found.items() if name not in ("curve", "by_agreement")}
