"""Score answers from a file, without training: sqale-grpo reward CASES.jsonl [--databases FOLDER]

Every line is a JSON object {"db": path, "gold": SQL, "predictions": [SQL or null, ...]}: one question with the answers
of one group. For every line one line comes out, {"outcomes": [{tier, reward, f1, join_share, agrees, error, message},
...]}, with the line's "id" if it has one, or {"gold_error": text} where the gold query does not run. A summary goes to
standard error. Exit code 1: some gold query did not run; 2: the input is not as described.
"""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from math import isnan
from pathlib import Path
from typing import Any

from sqale_grpo.env.errors import UserError
from sqale_grpo.env.sandbox import Limits, Sandbox
from sqale_grpo.reward.gold import GoldError
from sqale_grpo.reward.score import GOLD_SECONDS, Outcome, score_group

FIELDS = ("tier", "reward", "f1", "join_share", "agrees", "error", "message")
THREADS = 8


@dataclass(frozen=True)
class Case:
    """One line: a question by its gold query, the database's path, and a group's answers."""

    question_id: str
    gold_sql: str
    database: Path
    predictions: list[str | None]


def main(arguments: list[str] | None = None) -> int:
    """Read, score and print; returns the exit code."""
    parser = argparse.ArgumentParser(prog="sqale-grpo reward", description=__doc__.split("\n")[0])
    parser.add_argument("cases", type=Path, help='JSON lines {"db", "gold", "predictions"}')
    parser.add_argument("--databases", type=Path, default=Path(), help="folder that relative db paths start from")
    parser.add_argument("--seconds", type=float, default=Limits.seconds, help="time limit of an answer (%(default)g)")
    parser.add_argument("--gold-seconds", type=float, default=GOLD_SECONDS, help="and of a gold query (%(default)g)")
    options = parser.parse_args(arguments)
    try:
        limits = Limits(seconds=options.seconds)
        Limits(seconds=options.gold_seconds)
    except ValueError as error:
        raise UserError(str(error)) from error
    cases = list(read_cases(options.cases, options.databases))
    with ThreadPoolExecutor(THREADS) as threads:
        scored = list_printed(cases, threads.map(lambda case: score(case, limits, options.gold_seconds), cases))
    failures = sum(isinstance(outcomes, GoldError) for outcomes in scored)
    print(
        summary([each for outcomes in scored if isinstance(outcomes, list) for each in outcomes], failures),
        file=sys.stderr,
    )
    return 1 if failures else 0


def list_printed(cases: list[Case], scored: Iterable[list[Outcome] | GoldError]) -> list[list[Outcome] | GoldError]:
    """Print every case as soon as it and those before it are scored; all of them as a list."""
    listed = []
    for case, outcomes in zip(cases, scored, strict=True):
        print(json.dumps(printed(case, outcomes)), flush=True)
        listed.append(outcomes)
    return listed


def read_cases(file: Path, databases: Path) -> Iterator[Case]:
    """The cases of a file. Raises UserError for the first line that is none, OSError where there is no file."""
    with file.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if line.strip():
                try:
                    yield parse_case(json.loads(line.decode("utf-8", "surrogatepass")), databases)
                except ValueError as error:
                    raise UserError(f"{file}, line {number}: {error}") from error


def parse_case(line: Any, databases: Path) -> Case:
    """Check one line. Raises ValueError that says what is wrong."""
    if not isinstance(line, dict) or not isinstance(line.get("db"), str) or not isinstance(line.get("gold"), str):
        raise ValueError('expected {"db": path, "gold": SQL, "predictions": [SQL or null, ...]}')
    predictions = line.get("predictions")
    if not isinstance(predictions, list) or not all(each is None or isinstance(each, str) for each in predictions):
        raise ValueError("predictions must be a list of SQL texts (null: no answer)")
    database = databases / line["db"]
    if not database.is_file():
        raise ValueError(f"no database file at {database}; --databases names the folder that db starts from")
    Sandbox(database).close()  # raises ValueError for one that cannot be read as it is
    return Case(str(line.get("id", "")), line["gold"], database, predictions)


def score(case: Case, limits: Limits, gold_seconds: float) -> list[Outcome] | GoldError:
    """The outcomes of a case's answers, or why there are none."""
    with Sandbox(case.database, limits) as sandbox:
        try:
            return score_group(case, case.database, case.predictions, sandbox, gold_seconds=gold_seconds)
        except GoldError as error:
            return error


def printed(case: Case, outcomes: list[Outcome] | GoldError) -> dict[str, Any]:
    """What is printed for one case; numbers to six places."""
    named = {"id": case.question_id} if case.question_id else {}
    if isinstance(outcomes, GoldError):
        return named | {"gold_error": str(outcomes)}
    return named | {"outcomes": [{name: rounded(getattr(outcome, name)) for name in FIELDS} for outcome in outcomes]}


def rounded(value: Any) -> Any:
    """Numbers to six places; None for the reward of a void answer; all else as it is."""
    if isinstance(value, float):
        return None if isnan(value) else round(value, 6)
    return value


def summary(outcomes: list[Outcome], failures: int) -> str:
    """One line for a person to read."""
    errors = f"; {failures} gold queries did not run" if failures else ""
    if not outcomes:
        return f"no answers scored{errors}"
    tiers = Counter(outcome.tier for outcome in outcomes)
    counts = ", ".join(f"{count} {tier}" for tier, count in tiers.most_common())
    rewards = [outcome.reward for outcome in outcomes if outcome.tier != "void"]
    mean = f"mean reward {sum(rewards) / len(rewards):.3f}" if rewards else "no reward"
    return f"{len(outcomes)} answers: {counts}; {mean}{errors}"
