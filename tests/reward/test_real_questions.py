"""3,000 real questions: gold against itself, and against a one-token mutation as an independent comparator sees it."""

import json
import re
import sqlite3
import time
from collections import Counter, defaultdict
from contextlib import closing
from dataclasses import dataclass

import pytest
import sqlglot

from sqale_grpo.env.chance import rng
from sqale_grpo.env.sandbox import Limits, Sandbox, WorkerPool
from sqale_grpo.env.schema import SchemaGraph
from sqale_grpo.env.text import fold_name
from sqale_grpo.reward import score_group
from tests.helpers import slow

QUESTIONS, SPARE = 3_000, 150
SECONDS = 0.5  # a mutation that drops a join may run for ever: it is left out
ROWS = 10_000
OVERLAP_ROWS = 60  # up to this many rows F1 is compared too

TOKEN = re.compile(r"'(?:[^']|'')*'|\"[^\"]*\"|`[^`]*`|\[[^\]]*\]|\w+|<=|>=|<>|!=|==|[^\w\s]")
OPERATORS = {
    "=": "<>", "==": "<>", "<>": "=", "!=": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">", "+": "-", "-": "+",
    "/": "*", "and": "OR", "or": "AND", "asc": "DESC", "desc": "ASC", "min": "max", "max": "min", "avg": "sum",
    "sum": "avg", "union": "INTERSECT", "except": "UNION", "intersect": "EXCEPT", "like": "=", "distinct": "",
    "left": "INNER",
}  # fmt: skip


@dataclass(frozen=True)
class Question:
    question_id: str
    db_id: str
    gold_sql: str


@pytest.fixture(scope="module")
def questions(shared_data):
    """By database, drawn by chance."""
    lines = (shared_data / "questions.jsonl").read_text(encoding="utf-8").splitlines()
    usable = [line for line in map(json.loads, lines) if line["n_rows"] <= ROWS]
    drawn = rng("real questions").sample(usable, QUESTIONS + SPARE)
    grouped = defaultdict(list)
    for line in drawn:
        grouped[line["db_id"]].append(Question(line["question_id"], line["db_id"], line["sql"]))
    return grouped


def mutated(question, columns):
    """The gold query with one operator, literal or column changed; None where it has none of them."""
    chance = rng("mutation", question.question_id)
    options = []
    for found in TOKEN.finditer(question.gold_sql):
        token = found.group()
        name = fold_name(token.strip('"`[]'))
        if token.lower() in OPERATORS:
            options.append((found, OPERATORS[token.lower()]))
        elif token.isdigit():
            options.append((found, str(int(token) + chance.randint(1, 3))))
        elif token.startswith("'") and len(token) > 2:
            options.append((found, "'" + chance.choice([token[2:], token[1:-1] + "s'"])))
        elif name in columns:
            options.append((found, '"' + chance.choice(columns[name]) + '"'))
    if not options:
        return None
    found, text = chance.choice(options)
    return question.gold_sql[: found.start()] + text + question.gold_sql[found.end() :]


def other_columns(schema):
    """Every column's folded name to the columns of its table."""
    return {fold_name(column): schema.columns(table) for table in schema.tables for column in schema.columns(table)}


class TooSlow(Exception):
    """A query that takes longer than the test gives it."""


def run(connection, sql):
    """Rows and width, or None where the query fails, on a connection that knows nothing of the project."""
    ends = time.monotonic() + SECONDS
    connection.set_progress_handler(lambda: time.monotonic() > ends, 10_000)
    try:
        cursor = connection.execute(sql)
        rows = cursor.fetchmany(ROWS + 1)
        return None if len(rows) > ROWS or cursor.description is None else (rows, len(cursor.description))
    except sqlite3.Error as error:
        if error.sqlite_errorcode == sqlite3.SQLITE_INTERRUPT:
            raise TooSlow from error
        return None


def expected(gold, prediction, ordered):
    """Tier by the slow comparator; what does not run may be parsable or invalid."""
    if prediction is None:
        return "fails"
    same = gold[1] == prediction[1] and slow.equivalent(prediction[0], gold[0], ordered)
    return "equivalent" if same else "executable"


def is_ordered(sql):
    """By the syntax tree."""
    return sqlglot.parse_one(sql, dialect="sqlite").args.get("order") is not None


def check(question, sandbox, connection, columns):
    """Score gold and mutation, compare with the slow comparator; returns the tier of the mutation."""
    changed = mutated(question, columns)
    try:
        gold, prediction = run(connection, question.gold_sql), changed and run(connection, changed)
    except TooSlow:
        return "too slow"
    itself, other = score_group(question, sandbox.database, [question.gold_sql, changed], sandbox)
    assert itself.tier == "equivalent", (question, itself.message)
    assert itself.reward == 3.0 and itself.f1 == 1.0
    verdict = expected(gold, prediction, is_ordered(question.gold_sql))
    tier = "fails" if other.tier in ("parsable", "invalid") else other.tier
    if tier == "equivalent" and verdict == "executable" and is_ordered(question.gold_sql):
        # Ties of ORDER BY broken another way (tests/reward/test_ties.py); the slow comparator knows no ties.
        verdict = expected(gold, prediction, False)
    assert tier == verdict, (question, changed, other)
    if verdict == "executable" and len(gold[0]) + len(prediction[0]) <= OVERLAP_ROWS:
        pairs = slow.overlap(prediction[0], gold[0]) if gold[1] == prediction[1] else 0
        assert other.f1 == pytest.approx(2 * pairs / max(1, len(gold[0]) + len(prediction[0]))), (question, changed)
    return other.tier


@pytest.mark.long
def test_gold_and_mutations(questions, shared_data):
    tiers = Counter()
    with WorkerPool(workers=1) as pool:
        for db_id, asked in questions.items():
            path = shared_data / "databases" / db_id / f"{db_id}.sqlite"
            columns = other_columns(SchemaGraph.from_file(path))
            uri = f"file:{path}?mode=ro&immutable=1"
            with (
                closing(sqlite3.connect(uri, uri=True)) as connection,
                Sandbox(path, Limits(seconds=8 * SECONDS, rows=ROWS), pool) as sandbox,
            ):
                connection.text_factory = lambda raw: raw.decode("utf-8", "surrogateescape")
                tiers.update(check(question, sandbox, connection, columns) for question in asked)
    assert sum(tiers.values()) == QUESTIONS + SPARE
    assert tiers["too slow"] <= SPARE
    # The mutations do what they are for: they give every tier, and most of them another result.
    assert tiers["executable"] > QUESTIONS / 3 and tiers["equivalent"] > QUESTIONS / 20 and tiers["parsable"] > 10
