"""Proposed questions for a database that has none: made from templates, run, kept where the answer is one answer."""

import random
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice, zip_longest
from pathlib import Path

from sqale_grpo.corpus.own.judge import Weighed, judge
from sqale_grpo.corpus.own.profile import profiles
from sqale_grpo.corpus.own.templates import Proposal, proposals

MOST_RESULT_ROWS = 50  # a person can still look them over
TRIED = 4  # times as many as are wanted


def propose(db_id: str, path: Path, wanted: int, workers: int) -> list[Proposal]:
    """At most ``wanted`` questions over the database at ``path``, spread over its tables and the kinds of question.

    Each ran, gives 1 to 50 rows that hang on no tie, clock or order, and gives others where a condition is left out.
    """
    made = list(proposals(profiles(path)))
    texts = Counter(each.question for each in made)
    clear = [each for each in made if texts[each.question] == 1]  # one text with two queries has no right answer
    candidates = list(islice(_spread(clear), wanted * TRIED))
    verdicts = judge([(db_id, path, [each.sql for each in candidates])], workers)[db_id]
    good = (each for each, verdict in zip(candidates, verdicts, strict=True) if _is_good(verdict))
    return list(islice(good, wanted))


def _is_good(judged: Weighed) -> bool:
    verdict = judged.verdict
    fine = not (verdict.dropped or verdict.unstable or judged.weak)
    return fine and 1 <= verdict.n_rows <= MOST_RESULT_ROWS


def _spread(found: list[Proposal]) -> Iterator[Proposal]:
    """One of each table in turn, of another kind each time; the order hangs on nothing but the proposals."""
    by_table: dict[str, list[Proposal]] = {}
    for each in found:
        by_table.setdefault(each.table, []).append(each)
    for table, mine in by_table.items():
        random.Random(table).shuffle(mine)
        by_table[table] = sorted(mine, key=_turn(mine))
    for row in zip_longest(*by_table.values()):
        yield from (each for each in row if each is not None)


def _turn(mine: list[Proposal]) -> Callable[[Proposal], int]:
    """The first of each kind before the second of any."""
    seen: dict[str, int] = {}
    place = {}
    for each in mine:
        place[id(each)] = seen.get(each.template, 0)
        seen[each.template] = place[id(each)] + 1
    return lambda each: place[id(each)]
