"""EHRSQL's own evaluation (its ``evaluate.py``, v1.5): what it makes of a query before it runs, and its scores.

The rewriting is of the text alone and knows no quotes, so it may change or break what an answer says. It is applied to
gold query and answer alike. What a gold query means for training is in ``corpus.ehrsql``.
"""

import re
from collections.abc import Iterable
from typing import NamedTuple

CURRENT_TIME = "2105-12-31 23:59:00"
NORMAL_RANGES = {
    "temperature": (35.5, 38.1),
    "sao2": (95.0, 100.0),
    "heart_rate": (60.0, 100.0),
    "respiration": (12.0, 18.0),
    "systolic_bp": (90.0, 120.0),
    "diastolic_bp": (60.0, 90.0),
    "mean_bp": (60.0, 110.0),
}
ABSTAINS = "null"  # the answer of a model that holds a question for unanswerable, after the rewriting
_END = r"[ \n]+(?P<word>[a-zA-Z0-9_]+_{end})"
_LOWER, _UPPER = (re.compile(_END.format(end=end)) for end in ("lower", "upper"))


def as_executed(query: str) -> str:
    """The text that the benchmark's script runs for ``query``.

    In this order: all in lower case; ``current_time`` is the fixed moment, inside words and quotes too; the first
    ``<vital>_lower`` and ``<vital>_upper`` after a blank are numbers where they are ends of one vital sign; two single
    quotes are one; ``< =`` is ``<=``; ``%y`` is ``%Y`` and ``%j`` is ``%J``; ``'now'`` is the fixed moment.
    """
    query = query.lower().replace("current_time", f"'{CURRENT_TIME}'")
    lower, upper = _LOWER.search(query), _UPPER.search(query)
    if lower and upper:
        words = lower["word"], upper["word"]
        vital = words[0].removesuffix("_lower")
        if vital == words[1].removesuffix("_upper") and vital in NORMAL_RANGES:
            for word, end in zip(words, NORMAL_RANGES[vital], strict=True):
                query = query.replace(word, str(end))
    query = query.replace("''", "'").replace("< =", "<=").replace("%y", "%Y").replace("%j", "%J")
    return query.replace("'now'", f"'{CURRENT_TIME}'")


class Answered(NamedTuple):
    """One question of the benchmark: has it a gold query, did the model answer it, is the answer right?"""

    answerable: bool
    answered: bool
    right: bool


def abstention_scores(questions: Iterable[Answered]) -> dict[str, float]:
    """The six scores that EHRSQL publishes, between 0 and 1: precision, recall and F1 of answering and of executing.

    Precision is over what the model answered, recall over what can be answered; ``ans``: it answered what can be
    answered; ``exec``: and was right.
    """
    asked = list(questions)
    answered, answerable = ([each for each in asked if kept(each)] for kept in (_answered, _answerable))
    scores = {
        "precision_ans": _share([each.answerable for each in answered]),
        "recall_ans": _share([each.answered for each in answerable]),
        "precision_exec": _share([each.right for each in answered]),
        "recall_exec": _share([each.right for each in answerable]),
    }
    for kind in ("ans", "exec"):
        precision, recall = scores[f"precision_{kind}"], scores[f"recall_{kind}"]
        scores[f"f1_{kind}"] = 2 * precision * recall / (precision + recall) if precision + recall else 0.0
    return scores


def _answered(question: Answered) -> bool:
    return question.answered


def _answerable(question: Answered) -> bool:
    return question.answerable


def _share(values: list[bool]) -> float:
    return sum(values) / len(values) if values else 0.0
