"""The rounds of a preparation: all questions at once, or what a run draws, then the replacements of what fails.

Lengths are measured here, before anything runs.
"""

from array import array
from collections.abc import Iterator

from sqale_grpo.corpus.draws import DrawPlan, Draws, Measured
from sqale_grpo.corpus.staging import Staging
from sqale_grpo.curriculum import masked_length


def rounds(staging: Staging, plan: DrawPlan | None) -> Iterator[int]:
    """Open the questions to judge, round by round, and yield their number; the caller judges them.

    With a ``plan`` the rounds end when every question that the run draws is judged and good. Which are judged does not
    depend on interruptions: an order's questions are asked for as far as the draws reach, and no further.
    """
    if plan is None:
        yield staging.progress()[0]
        return
    numbers, measured = _measure(staging)
    draws = Draws(plan, measured)
    places = {numbers[each]: place for place, each in enumerate(draws.measured)}
    able, known = set(range(len(places))), set()
    while True:
        for number, dropped, unstable, luck in staging.verdicts():
            place = places.get(number)
            if place is None:
                continue
            known.add(place)
            if dropped or not plan.takes(unstable, luck):
                able.discard(place)
        wanted = draws.wanted(able, known)
        staging.want(numbers[draws.measured[place]] for place in wanted)
        if not wanted:
            return
        yield len(wanted)


def _measure(staging: Staging) -> tuple[array, Measured]:
    """Numbers and lengths of every record that could be asked."""
    numbers, lengths, difficulties = array("I"), array("I"), []
    known: dict[str, str] = {}  # one text a difficulty, not millions
    for number, sql, difficulty in staging.measurable():
        numbers.append(number)
        lengths.append(masked_length(sql))
        difficulties.append(known.setdefault(difficulty, difficulty))
    return numbers, Measured(lengths, difficulties, ())


def measured_rows(staging: Staging) -> Iterator[tuple[int, str, int]]:
    """(length, difficulty, row in the index or -1) of every record that could be asked, in the order of the source."""
    rows = {number: row for row, number in enumerate(staging.kept_numbers())}
    for number, sql, difficulty in staging.measurable():
        yield masked_length(sql), difficulty, rows.get(number, -1)
